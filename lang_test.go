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
