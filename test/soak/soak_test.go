package soak

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox"
)

// workers use boxes at once.
const workers = 3

// What a server may have grown by over a whole soak: it remembers how its latest
// boxes ended, and the runtime keeps a few goroutines and descriptors of its own.
const (
	slackHeapBytes   = 2 << 20
	slackGoroutines  = 4
	slackDescriptors = 4
)

// Boxes made, used and killed: nothing is left of any, and the server is as
// large as it was after the first few.
func TestSoak(t *testing.T) {
	s := start(t, order{Dir: t.TempDir()})
	const first = boxes / 5
	s.soak(first)
	before := s.settled(size{})
	s.soak(boxes - first)
	after := s.settled(before)
	t.Logf("after %4d boxes: %+v", first, before)
	t.Logf("after %4d boxes: %+v", boxes, after)
	if after.HeapBytes > before.HeapBytes+slackHeapBytes {
		t.Errorf("the server's memory grew from %d to %d bytes", before.HeapBytes, after.HeapBytes)
	}
	if after.Goroutines > before.Goroutines+slackGoroutines {
		t.Errorf("the server's goroutines grew from %d to %d", before.Goroutines, after.Goroutines)
	}
	if after.Descriptors > before.Descriptors+slackDescriptors {
		t.Errorf("the server's descriptors grew from %d to %d", before.Descriptors, after.Descriptors)
	}
	if after.Children != 0 {
		t.Errorf("the server has %d child processes", after.Children)
	}
	nothing(t, s.order.Dir)
	s.close()
	nothing(t, s.order.Dir)
}

// soak makes, uses and kills n boxes, several at once.
func (s *server) soak(n int) {
	s.t.Helper()
	var next atomic.Int64
	var wg sync.WaitGroup
	for range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for {
				i := int(next.Add(1))
				if i > n {
					return
				}
				ctx, cancel := context.WithTimeout(context.Background(), patience)
				err := s.use(ctx, i)
				cancel()
				if err != nil {
					s.t.Errorf("box %d: %v", i, err)
					return
				}
			}
		}()
	}
	wg.Wait()
}

// settled measures until the server is not larger than want, or for some time:
// connections and streams that broke a moment ago are still being cleared away.
func (s *server) settled(want size) size {
	s.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		m := s.measure()
		calm := m.Children == 0 && (want == size{} || m.Goroutines <= want.Goroutines && m.Descriptors <= want.Descriptors && m.HeapBytes <= want.HeapBytes)
		if calm || time.Now().After(deadline) {
			return m
		}
	}
}

// stubborn are processes that do not want to go, and one that prints for ever.
const stubborn = `trap "" TERM HUP INT
	(setsid bash -c 'trap "" TERM; (setsid sleep 8001 &) ; exec sleep 8001' &)
	mkfifo /tmp/p$$; while :; do echo the same line again and again; done`

// use does with box number i what a client does with one, and kills it.
func (s *server) use(ctx context.Context, i int) error {
	sb, err := s.provider.Create(ctx, sandbox.Spec{Image: s.image, Timeout: 10 * time.Minute, Metadata: map[string]string{"number": fmt.Sprint(i)}, Egress: i%2 == 0})
	if err != nil {
		return err
	}
	if err := s.work(ctx, sb, i); err != nil {
		return errors.Join(err, s.provider.Kill(ctx, sb.ID()))
	}
	token, err := s.token(ctx, sb.ID())
	if err != nil {
		return err
	}
	// One client goes in the middle of an upload, one in the middle of a stream.
	s.cutUpload(ctx, sb.ID(), token)
	cut, stop := context.WithCancel(ctx)
	defer stop()
	body, err := s.stream(cut, sb.ID(), token)
	if err != nil {
		return err
	}
	defer body.Close()
	if _, err := io.CopyN(io.Discard, body, 64<<10); err != nil {
		return fmt.Errorf("read the stream: %w", err)
	}
	if i%2 == 0 {
		stop() // the client goes; the process stays and the box is killed under it
	}
	if err := s.provider.Kill(ctx, sb.ID()); err != nil {
		return err
	}
	if i%2 != 0 {
		// The box is killed under the stream, which must not look complete.
		if _, err := io.Copy(io.Discard, body); err == nil {
			return errors.New("the stream of a killed box ended as if it were complete")
		}
	}
	return nil
}

// work writes, runs, lists and reads.
func (s *server) work(ctx context.Context, sb sandbox.Sandbox, i int) error {
	files := make([]sandbox.File, 20)
	for k := range files {
		files[k] = sandbox.File{Path: fmt.Sprintf("/workspace/p/%d/%d.txt", k%3, k), Data: bytes.Repeat([]byte{byte('a' + k)}, 1000*k)}
	}
	if err := sb.WriteFiles(ctx, files); err != nil {
		return err
	}
	res, err := sandbox.Run(ctx, sb, sandbox.Command{Args: []string{"sh", "-c", `cat /workspace/p/*/*.txt | wc -c; echo "$0" >&2; exit 3`, fmt.Sprint(i)}}, 1000)
	if err != nil {
		return err
	}
	if got := strings.TrimSpace(string(res.Stdout)) + " " + strings.TrimSpace(string(res.Stderr)); res.Code != 3 || got != fmt.Sprintf("190000 %d", i) {
		return fmt.Errorf("the command says %q and exits with %d", got, res.Code)
	}
	entries, err := sb.List(ctx, "/workspace/p", 2)
	if err != nil {
		return err
	}
	if len(entries) != 23 {
		return fmt.Errorf("%d entries in the folder", len(entries))
	}
	data, err := sb.ReadFile(ctx, "/workspace/p/1/19.txt", 1<<20)
	if err != nil {
		return err
	}
	if !bytes.Equal(data, files[19].Data) {
		return fmt.Errorf("the file came back with %d other bytes", len(data))
	}
	return nil
}

// token is what opens a box to plain requests.
func (s *server) token(ctx context.Context, id dreamcore.SandboxID) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/sandboxes/"+string(id), nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("X-Api-Key", enginetest.APIKey)
	res, err := s.http.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	var b struct {
		Token string `json:"envdAccessToken"`
	}
	if err := json.NewDecoder(res.Body).Decode(&b); err != nil || b.Token == "" {
		return "", fmt.Errorf("a box without a token: %s, %w", res.Status, err)
	}
	return b.Token, nil
}

func (s *server) request(ctx context.Context, method, path string, body io.Reader, id dreamcore.SandboxID, token string) (*http.Request, error) {
	req, err := http.NewRequestWithContext(ctx, method, s.url+path, body)
	if err != nil {
		return nil, err
	}
	req.Header.Set("E2b-Sandbox-Id", string(id))
	req.Header.Set("E2b-Sandbox-Port", "49983")
	req.Header.Set("X-Access-Token", token)
	return req, nil
}

// stream starts the stubborn processes and returns their output as it comes.
func (s *server) stream(ctx context.Context, id dreamcore.SandboxID, token string) (io.ReadCloser, error) {
	message, err := json.Marshal(map[string]any{"process": map[string]any{"cmd": "bash", "args": []string{"-c", stubborn}}})
	if err != nil {
		return nil, err
	}
	body := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(message)))
	req, err := s.request(ctx, http.MethodPost, "/process.Process/Start", bytes.NewReader(append(body, message...)), id, token)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/connect+json")
	req.Header.Set("Connect-Protocol-Version", "1")
	res, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode != http.StatusOK {
		res.Body.Close()
		return nil, fmt.Errorf("start: %s", res.Status)
	}
	return res.Body, nil
}

// cutUpload goes in the middle of an upload. What it is answered is nothing.
func (s *server) cutUpload(ctx context.Context, id dreamcore.SandboxID, token string) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	half := io.MultiReader(bytes.NewReader(make([]byte, 300<<10)), breaking(cancel))
	req, err := s.request(ctx, http.MethodPost, "/files?path=/workspace/half&username=user", half, id, token)
	if err != nil {
		s.t.Error(err)
		return
	}
	req.ContentLength = 1 << 20
	req.Header.Set("Content-Type", "application/octet-stream")
	if res, err := s.http.Do(req); err == nil {
		s.t.Errorf("half an upload was answered: %s", res.Status)
		res.Body.Close()
	}
}

// breaking is a body whose client goes while it is read.
type breaking context.CancelFunc

func (b breaking) Read([]byte) (int, error) {
	b()
	return 0, errors.New("the client has gone")
}

func nothing(t *testing.T, dir string) {
	t.Helper()
	left, err := enginetest.Left(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, l := range left {
		t.Errorf("left over: %s", l)
	}
}
