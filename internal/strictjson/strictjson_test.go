package strictjson

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
)

func TestParseRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		in   string
		want error
	}{
		"same name twice":             {`{"a":1,"a":2}`, ErrDuplicate},
		"same name, escaped":          {`{"model":1,"mod\u0065l":2}`, ErrDuplicate},
		"same name far down":          {`{"a":[{"b":1,"c":{"d":1,"d":1}}]}`, ErrDuplicate},
		"second document":             {`{} {}`, ErrTrailing},
		"trailing letters":            {`{}x`, ErrTrailing},
		"trailing NUL":                {"{}\x00", ErrTrailing},
		"overlong UTF-8":              {"{\"a\":\"\xc0\xaf\"}", ErrUTF8},
		"surrogate in UTF-8":          {"\"\xed\xa0\x80\"", ErrUTF8},
		"byte order mark":             {"\ufeff{}", ErrSyntax},
		"empty":                       {``, ErrSyntax},
		"control character in string": {"\"a\nb\"", ErrSyntax},
		"bad escape":                  {`"\x41"`, ErrSyntax},
		"leading zero":                {`01`, ErrTrailing},
		"plus":                        {`+1`, ErrSyntax},
		"bare point":                  {`1.`, ErrSyntax},
		"NaN":                         {`NaN`, ErrSyntax},
		"comma at the end":            {`[1,]`, ErrSyntax},
		"comment":                     {`{/**/}`, ErrSyntax},
		"single quotes":               {`{'a':1}`, ErrSyntax},
		"unclosed":                    {`{"a":[1`, ErrSyntax},
		"deep":                        {strings.Repeat("[", MaxDepth+2) + strings.Repeat("]", MaxDepth+2), ErrLimit},
		"long number":                 {strings.Repeat("1", MaxNumberBytes+1), ErrLimit},
		"many values":                 {"[" + strings.Repeat("1,", MaxValues) + "1]", ErrLimit},
	} {
		if _, err := Parse([]byte(c.in)); !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}

func TestSeventeenthNameTwiceIsSeen(t *testing.T) {
	var b strings.Builder
	b.WriteString("{")
	for i := range 40 {
		b.WriteString(`"n` + strings.Repeat("x", i) + `":0,`)
	}
	if _, err := Parse([]byte(b.String() + `"nxxx":1}`)); !errors.Is(err, ErrDuplicate) {
		t.Errorf("got %v", err)
	}
	if _, err := Parse([]byte(b.String() + `"other":1}`)); err != nil {
		t.Error(err)
	}
}

func TestNamesAreExact(t *testing.T) {
	v, err := Parse([]byte(`{"Model":"a","modeł":"b","MODEL":"c"}`))
	if err != nil {
		t.Fatal(err)
	}
	if v.Get("model") != nil {
		t.Error("a name was matched without its case")
	}
	v.Set("model", Str("x"))
	v.Delete("MODEL")
	if got := string(v.Append(nil)); got != `{"Model":"a","modeł":"b","model":"x"}` {
		t.Error(got)
	}
}

// FuzzParse holds Parse against encoding/json: what Parse takes, the standard
// library reads as the same value, and what Append writes, too.
func FuzzParse(f *testing.F) {
	for _, s := range []string{
		`{"a":[1,-2.5e3,true,false,null,"x\u00e9\ud83d\ude00\ud800\\\"\/\b\f\n\r\t"]}`, `""`, `[[],{}]`, `{"a":{"a":1}}`, `1e999`, `"\ud800\u0041"`,
		`{"a":1,"a":2}`, `{} {}`, "\"\xc0\xaf\"", `[1,]`, `-0`, `"\u0000"`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := Parse(data)
		if err != nil {
			return
		}
		var want, again any
		dec := json.NewDecoder(bytes.NewReader(data))
		dec.UseNumber()
		if err := dec.Decode(&want); err != nil {
			t.Fatalf("the standard library refuses what Parse took: %v", err)
		}
		out := v.Append(nil)
		dec = json.NewDecoder(bytes.NewReader(out))
		dec.UseNumber()
		if err := dec.Decode(&again); err != nil {
			t.Fatalf("Append wrote no JSON: %v: %q", err, out)
		}
		if !reflect.DeepEqual(want, again) {
			t.Fatalf("not the same value: %q became %q", data, out)
		}
		if w, err := Parse(out); err != nil || !bytes.Equal(w.Append(nil), out) {
			t.Fatalf("not stable: %q: %v", out, err)
		}
	})
}

var person = Record(Fields{
	"name": Need(Text(5)), "age": Opt(Whole(0, 150)), "secret": Drop(Any), "url": Never("it would be fetched"),
	"pets": Opt(Each(2, Tagged("", map[string]Rule{"cat": Record(Fields{"type": Need(Text(9)), "size": Opt(Range(0, 1))})}, map[string]string{"dragon": "too dangerous"}))),
	"ok":   Opt(No("never")), "note": Opt(Maybe(ByKind(map[Kind]Rule{String: Enum("a", "b"), Object: AnyObject}))), "flag": Opt(YesNo),
})

func TestSchema(t *testing.T) {
	for in, want := range map[string]string{
		`{"name":"x"}`: "",
		`{"name":"x","age":1,"secret":{"a":1},"note":null}`:     "",
		`{"name":"x","pets":[{"type":"cat","size":0.5}]}`:       "",
		`{"name":"x","note":"a","ok":false,"flag":true}`:        "",
		`{"name":"x","note":{"deep":[1]}}`:                      "",
		`[]`:                                                    "the request must be of type object, not array",
		`{}`:                                                    "the field name is missing",
		`{"Name":"x"}`:                                          "the field Name is not allowed",
		`{"name":"x","na\u017fme":1}`:                           `the field "na\u017fme" is not allowed`,
		`{"name":"toolong"}`:                                    "the field name has 7 bytes, at most 5 are allowed",
		`{"name":1}`:                                            "the field name must be of type string, not number",
		`{"name":"x","age":1.0}`:                                "the field age must be a whole number from 0 to 150",
		`{"name":"x","age":"1"}`:                                "the field age must be a whole number from 0 to 150",
		`{"name":"x","age":99999999999999999999}`:               "the field age must be a whole number from 0 to 150",
		`{"name":"x","url":1}`:                                  "the field url is not allowed: it would be fetched",
		`{"name":"x","pets":[{"type":"dragon_2"}]}`:             "the field pets[0] has the type dragon_2, which is not allowed: too dangerous",
		`{"name":"x","pets":[{"type":"dog"}]}`:                  "the field pets[0] has the type dog, which is not allowed",
		`{"name":"x","pets":[{"type":"cat"},{"type":1}]}`:       "the field pets[1].type must be of type string, not number",
		`{"name":"x","pets":[{"type":"cat","base_url":1}]}`:     "the field pets[0].base_url is not allowed",
		`{"name":"x","pets":[1,2,3]}`:                           "the field pets has 3 elements, at most 2 are allowed",
		`{"name":"x","pets":[{"type":"cat","size":1.5}]}`:       "the field pets[0].size must be a number from 0 to 1",
		`{"name":"x","ok":true}`:                                "the field ok must be false: never",
		`{"name":"x","note":7}`:                                 "the field note must not be of type number",
		`{"name":"x","note":"c"}`:                               "the field note must be one of a, b",
		`{"name":"x","flag":1}`:                                 "the field flag must be of type boolean, not number",
		"{\"name\":\"x\",\"\\u202e\\n\":1}":                     `the field "\u202e\n" is not allowed`,
		`{"name":"x","` + strings.Repeat("y", 1000) + `":null}`: "the field " + strings.Repeat("y", 64) + " is not allowed",
	} {
		v, err := Parse([]byte(in))
		if err != nil {
			t.Fatalf("%s: %v", in, err)
		}
		got := ""
		if err := Check(&v, person); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s:\n got %q\nwant %q", in, got, want)
		}
		if want == "" && v.Get("secret") != nil {
			t.Errorf("%s: a field to drop is still there", in)
		}
	}
}
