package picture

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"image/png"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"dreamcore"
)

const key = "the-key-of-the-maker"

func serve(t *testing.T) (*httptest.Server, *bytes.Buffer) {
	t.Helper()
	log := &bytes.Buffer{}
	s := httptest.NewServer(Handler(dreamcore.NewSecret(key), slog.New(slog.NewTextHandler(log, nil))))
	t.Cleanup(s.Close)
	return s, log
}

type answer struct {
	status int
	Data   []struct {
		B64 string `json:"b64_json"`
	} `json:"data"`
	Error struct{ Message, Code, Type string } `json:"error"`
}

func post(t *testing.T, url, auth, body string) answer {
	t.Helper()
	req, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Authorization", auth)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	a := answer{status: resp.StatusCode}
	if err := json.Unmarshal(data, &a); err != nil {
		t.Fatalf("%d %q: %v", resp.StatusCode, data, err)
	}
	return a
}

func TestHandlerMakesPictures(t *testing.T) {
	s, log := serve(t)
	url := s.URL + "/v1/images/generations"
	a := post(t, url, "Bearer "+key, `{"model":"builtin-pictures","prompt":"a flying cat","n":2,"size":"96x64","background":"transparent","quality":"high","response_format":"b64_json"}`)
	if a.status != http.StatusOK || len(a.Data) != 2 {
		t.Fatalf("%+v", a)
	}
	for _, d := range a.Data {
		raw, err := base64.StdEncoding.DecodeString(d.B64)
		if err != nil {
			t.Fatal(err)
		}
		m, err := png.Decode(bytes.NewReader(raw))
		if err != nil {
			t.Fatal(err)
		}
		if m.Bounds().Dx() != 96 || m.Bounds().Dy() != 64 {
			t.Errorf("it is %v", m.Bounds())
		}
		if _, _, _, alpha := m.At(0, 0).RGBA(); alpha != 0 {
			t.Error("it is not transparent")
		}
	}
	if !strings.Contains(log.String(), "decision=drawn") || !strings.Contains(log.String(), "concept=cat") {
		t.Errorf("the log says %q", log)
	}
	log.Reset()
	if a := post(t, url, "Bearer "+key, `{"prompt":"flibber\nlevel=ERROR","size":"32x32"}`); a.status != http.StatusOK {
		t.Errorf("an unknown word gives %+v", a)
	}
	if got := log.String(); !strings.Contains(got, "level=WARN") || !strings.Contains(got, "decision=fallback") || strings.Count(got, "\n") != 1 {
		t.Errorf("an unknown word is logged as %q", got)
	}
	if strings.Contains(log.String(), key) {
		t.Error("the key is in the log")
	}
}

func TestHandlerEffects(t *testing.T) {
	s, _ := serve(t)
	url := s.URL + "/v1/images/generations"
	plain := post(t, url, "Bearer "+key, `{"prompt":"a cat","size":"48x48"}`)
	for _, more := range []string{
		`"effects":["tint:#00ff00"]`, `"effects":["outline:#ffffff"]`, `"effects":["flip"]`, `"effects":["facing:right"]`,
		`"style":"pixel"`, `"style":"retro pixel-art look"`, `"background":"opaque"`,
	} {
		a := post(t, url, "Bearer "+key, `{"prompt":"a cat","size":"48x48",`+more+`}`)
		if a.status != http.StatusOK || a.Data[0].B64 == plain.Data[0].B64 {
			t.Errorf("%s changes nothing: %d %+v", more, a.status, a.Error)
		}
	}
	if a := post(t, url, "Bearer "+key, `{"prompt":"a cat","size":"48x48","style":"warm and cosy"}`); a.status != http.StatusOK {
		t.Errorf("a style in free words: %+v", a)
	}
}

func TestHandlerRefuses(t *testing.T) {
	s, _ := serve(t)
	url := s.URL + "/v1/images/generations"
	ok := `{"prompt":"a cat"}`
	for _, auth := range []string{"", "Bearer ", "Bearer wrong", key, "Basic " + key, "Bearer " + key + "x"} {
		if a := post(t, url, auth, ok); a.status != http.StatusUnauthorized || a.Error.Type != "authentication_error" || len(a.Data) != 0 {
			t.Errorf("with %q: %+v", auth, a)
		}
	}
	for body, status := range map[string]int{
		`{`: 400, `[]`: 400, `{}`: 400, `{"prompt":"  "}`: 400, `{"prompt":"a cat","n":0}`: 400, `{"prompt":"a cat","n":5}`: 400,
		`{"prompt":"a cat","size":"1x1"}`: 400, `{"prompt":"a cat","size":"99999x99999"}`: 400, `{"prompt":"a cat","size":"big"}`: 400,
		`{"prompt":"a cat","model":"gpt-image-1"}`: 400, `{"prompt":"a cat","background":"blue"}`: 400,
		`{"prompt":"a cat","effects":["explode"]}`: 400, `{"prompt":"a cat","effects":["tint:blue"]}`: 400,
		`{"prompt":"a cat","response_format":"url"}`: 400, `{"prompt":"a cat","output_format":"jpeg"}`: 400,
		`{"prompt":"` + strings.Repeat("x", maxBodyBytes) + `"}`: 413,
	} {
		if a := post(t, url, "Bearer "+key, body); a.status != status || a.Error.Message == "" {
			t.Errorf("%.60s: %+v, want %d", body, a, status)
		}
	}
	if a := post(t, s.URL+"/v1/files", "Bearer "+key, ok); a.status != http.StatusNotFound {
		t.Errorf("another route: %+v", a)
	}
	shut := httptest.NewServer(Handler(dreamcore.Secret{}, slog.New(slog.DiscardHandler)))
	defer shut.Close()
	if a := post(t, shut.URL+"/v1/images/generations", "Bearer ", ok); a.status != http.StatusUnauthorized {
		t.Errorf("a maker without a key lets in: %+v", a)
	}
}
