package wire

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestPiecesKeepCharactersWhole(t *testing.T) {
	for _, s := range []string{"", "short", strings.Repeat("空を飛ぶ猫🐈", 40), strings.Repeat("x", 100)} {
		for n := 1; n < 9; n++ {
			if n < utf8.UTFMax && strings.Contains(s, "🐈") {
				continue
			}
			all := pieces(s, n)
			if strings.Join(all, "") != s {
				t.Errorf("the pieces of %q are %q", s, all)
			}
			for _, p := range all {
				if !utf8.ValidString(p) || len(p) > n {
					t.Errorf("a piece of at most %d bytes is %q", n, p)
				}
			}
		}
	}
}

func TestDecode(t *testing.T) {
	for _, test := range []struct {
		name     string
		protocol Protocol
		body     string
		want     []Item
		tools    []string
	}{
		{
			"messages",
			Anthropic{},
			`{"model":"m","system":"s","tools":[{"name":"Bash","input_schema":{}},{"type":"web_search","name":"w"}],"messages":[{"role":"user","content":"hi"},
			{"role":"assistant","content":[{"type":"thinking","thinking":"x"},{"type":"text","text":"t"},{"type":"tool_use","id":"1","name":"Bash","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","is_error":true,"content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]}]}]}`,
			[]Item{{Role: System, Text: "s"}, {Role: User, Text: "hi"}, {Role: Assistant, Text: "t"}, {Role: Caller, ID: "1", Tool: "Bash"}, {Role: Result, ID: "1", Text: "a\nb", Failed: true}},
			[]string{"Bash"},
		},
		{
			"chat",
			Chat{},
			`{"model":"m","tools":[{"type":"function","function":{"name":"bash","parameters":{}}}],"messages":[{"role":"system","content":"s"},{"role":"user","content":[{"type":"text","text":"hi"}]},
			{"role":"assistant","content":null,"tool_calls":[{"id":"1","type":"function","function":{"name":"bash","arguments":"{}"}}]},{"role":"tool","tool_call_id":"1","content":"out"}]}`,
			[]Item{{Role: System, Text: "s"}, {Role: User, Text: "hi"}, {Role: Caller, ID: "1", Tool: "bash"}, {Role: Result, ID: "1", Text: "out"}},
			[]string{"bash"},
		},
		{
			"responses",
			Responses{},
			`{"model":"m","instructions":"s","tools":[{"type":"custom","name":"apply_patch"}],"input":[{"type":"additional_tools","tools":[{"type":"namespace","name":"n","tools":[{"type":"function","name":"exec_command","parameters":{}}]}]},
			{"type":"message","role":"developer","content":"d"},{"role":"user","content":[{"type":"input_text","text":"hi"}]},{"type":"reasoning","summary":[]},
			{"type":"function_call","call_id":"1","name":"exec_command","arguments":"{}"},{"type":"function_call_output","call_id":"1","output":{"content":"out"}},
			{"type":"local_shell_call","call_id":"2"}]}`,
			[]Item{{Role: System, Text: "s"}, {Role: System, Text: "d"}, {Role: User, Text: "hi"}, {Role: Caller, ID: "1", Tool: "exec_command"}, {Role: Result, ID: "1", Text: "out"}, {Role: Caller, ID: "2", Tool: "local_shell_call"}},
			[]string{"apply_patch", "exec_command"},
		},
	} {
		req, err := test.protocol.Decode([]byte(test.body))
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		var tools []string
		for _, o := range req.Tools {
			tools = append(tools, o.Name)
		}
		if !slices.Equal(req.Items, test.want) || !slices.Equal(tools, test.tools) {
			t.Errorf("%s: items %+v, tools %v", test.name, req.Items, tools)
		}
	}
}

func TestToolsAsOffered(t *testing.T) {
	schema := func(s string) map[string]any {
		var m map[string]any
		if err := json.Unmarshal([]byte(s), &m); err != nil {
			t.Fatal(err)
		}
		return m
	}
	array := Request{Tools: []Tool{{Name: "shell", Schema: schema(`{"properties":{"command":{"type":"array"},"timeout_ms":{"type":"number"},"mode":{"enum":["a"]},"with":{"type":"object"}},"required":["command","timeout_ms","mode","with"]}`)}}}
	free := Request{Tools: []Tool{{Name: "exec", Free: true}}}
	one := Request{Tools: []Tool{{Name: "edit_file", Schema: schema(`{"properties":{"file_path":{},"old_string":{},"new_string":{}}}`)}, {Name: "bash", Schema: schema(`{"properties":{"command":{}}}`)}}}
	edits := []Edit{{"a", "b"}, {"c", "d"}}
	for _, test := range []struct {
		name string
		call func() (*Call, error)
		want string
	}{
		{"array", func() (*Call, error) { return array.Shell("ls") }, `{"command":["bash","-lc","ls"],"mode":"a","timeout_ms":300000,"with":{}}`},
		{"free", func() (*Call, error) { return free.Shell(`echo "x"`) }, "const r = await tools.exec_command({cmd: \"echo \\\"x\\\"\"});\ntext(r.output ?? JSON.stringify(r));"},
		{"one edit", func() (*Call, error) { return one.Edit("/f", edits[:1], "whole") }, `{"file_path":"/f","new_string":"b","old_string":"a"}`},
		{"two edits are a write", func() (*Call, error) { return one.Edit("/f", edits, "whole") }, `{"command":"mkdir -p '/' && cat > '/f' <<'DREAMCORE_END'\nwhole\nDREAMCORE_END"}`},
		{"a file with the mark in it", func() (*Call, error) { return one.Write("/a'b", "DREAMCORE_END\n") }, `{"command":"mkdir -p '/' && cat > '/a'\\''b' <<'DREAMCORE_END_'\nDREAMCORE_END\nDREAMCORE_END_"}`},
		{"read by the shell", func() (*Call, error) { return one.Read("/f") }, `{"command":"cat '/f'"}`},
	} {
		c, err := test.call()
		if err != nil {
			t.Fatalf("%s: %v", test.name, err)
		}
		got := c.Free
		if got == "" {
			got = c.arguments()
		}
		if got != test.want {
			t.Errorf("%s: %s, want %s", test.name, got, test.want)
		}
	}
	if _, err := (Request{}).Shell("ls"); err != ErrNoTool {
		t.Errorf("without tools: %v", err)
	}
}

// A call in free text is streamed as what it is.
func TestFreeCall(t *testing.T) {
	req, err := Responses{}.Decode([]byte(`{"model":"m","stream":true}`))
	if err != nil {
		t.Fatal(err)
	}
	w := httptest.NewRecorder()
	if err := (Responses{}).Stream(NewEvents(w), req, Answer{Call: &Call{Tool: "exec", Free: "text(1)"}}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`event: response.custom_tool_call_input.delta`, `"input":"text(1)"`, `"type":"custom_tool_call"`} {
		if !strings.Contains(w.Body.String(), want) {
			t.Errorf("the stream lacks %s:\n%s", want, w.Body)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{}`, `{"model":"m","messages":[{"role":"user","content":[null,1,"x",{"type":"text"}]}]}`, `{"model":"m","input":"x","tools":[1,{"type":"namespace"}]}`, `[]`, `{"model":1}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, p := range []Protocol{Anthropic{}, Chat{}, Responses{}} {
			req, err := p.Decode(body)
			if err != nil {
				continue
			}
			if !json.Valid(body) || req.Model == "" {
				t.Errorf("%T read %q", p, body)
			}
			if _, err := json.Marshal(p.Whole(req, Answer{Text: "x", Call: &Call{Tool: "t"}})); err != nil {
				t.Error(err)
			}
		}
	})
}
