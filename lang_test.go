package dreamcore

import "testing"

func TestAcceptLang(t *testing.T) {
	for header, want := range map[string]Lang{
		"":                                 English,
		"ja":                               Japanese,
		"zh-CN,zh;q=0.9,en;q=0.8":          Chinese,
		"fr-FR,fr;q=0.9,ja;q=0.5,en;q=0.3": Japanese,
		"en;q=0.1, zh-Hant-TW;q=0.2":       Chinese,
		"ja;q=0,en":                        English,
		"ja;q=abc,zh;q=0.1":                Chinese,
		"ja;q=NaN":                         English,
		"*":                                English,
		"de":                               English,
		",;q=1,,ja_JP":                     Japanese,
		"x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,x,ja": English,
	} {
		if got := AcceptLang(header); got != want {
			t.Errorf("%q: got %s, want %s", header, got, want)
		}
	}
}

func FuzzAcceptLang(f *testing.F) {
	f.Add("ja;q=0.5,en")
	f.Add(";q=1e309,zh;q=-0")
	f.Fuzz(func(t *testing.T, header string) {
		got := AcceptLang(header)
		if _, ok := ParseLang(string(got)); !ok {
			t.Fatalf("%q", got)
		}
	})
}
