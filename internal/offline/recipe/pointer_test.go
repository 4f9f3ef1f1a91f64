package recipe

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestDocumentKeepsTheRest(t *testing.T) {
	const text = "{ \"b\" : {\"x/y\":[1, 2.50,\"three\"]},\n\t\"a\":true , \"c\":\"<ü>\"}\n"
	doc, err := newDocument([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	doc.set("/b/x~1y/1", json.RawMessage("3.75"))
	doc.set("/a", false)
	doc.set("/missing", 1)
	doc.set("/c", "<ネコ>")
	got, err := doc.bytes()
	if err != nil {
		t.Fatal(err)
	}
	const want = "{ \"b\" : {\"x/y\":[1, 3.75,\"three\"]},\n\t\"a\":false , \"c\":\"<ネコ>\"}\n"
	if string(got) != want {
		t.Errorf("got %s", got)
	}
}

func TestDocumentRefuses(t *testing.T) {
	for _, s := range []string{"", "{", "{} {}", `{"a":}`, "[1,]", "x"} {
		if _, err := newDocument([]byte(s)); err == nil {
			t.Errorf("%q was read", s)
		}
	}
}

// Every value lies where the spans say, and a document without changes is the
// text itself.
func FuzzDocument(f *testing.F) {
	for _, s := range []string{`{"a":[1,{"b":null}],"c":"d"}`, `[[],{}, -1e9]`, `"x"`, ` 0 `, `{"a":1,"a":2}`, `{"~/":1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		doc, err := newDocument(text)
		if err != nil {
			return
		}
		if !json.Valid(text) {
			t.Fatalf("%q is not JSON and was read", text)
		}
		same, err := doc.bytes()
		if err != nil || string(same) != string(text) {
			t.Fatalf("%q became %q, %v", text, same, err)
		}
		for pointer, s := range doc.values {
			// Valid, not Unmarshal: 1E700 is JSON and no float64.
			if !json.Valid(text[s.start:s.end]) {
				t.Fatalf("%q: %s is %q", text, pointer, text[s.start:s.end])
			}
		}
		for pointer := range doc.values {
			one, err := newDocument(text)
			if err != nil {
				t.Fatal(err)
			}
			one.set(pointer, "new")
			out, err := one.bytes()
			if err != nil {
				t.Fatal(err)
			}
			again, err := newDocument(out)
			var now any
			if err != nil || !again.get(pointer, &now) || !reflect.DeepEqual(now, "new") {
				t.Fatalf("%q with %s set is %q", text, pointer, out)
			}
		}
	})
}
