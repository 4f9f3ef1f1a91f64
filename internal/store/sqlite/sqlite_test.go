package sqlite

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"dreamcore"
	"dreamcore/internal/store"
	"dreamcore/internal/store/storetest"
)

func open(t *testing.T, path string) *Store {
	t.Helper()
	s, err := Open(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func TestConformance(t *testing.T) {
	storetest.Run(t, func(t *testing.T) store.Store { return open(t, filepath.Join(t.TempDir(), "s.db")) })
}

func TestAFileOutlivesTheProgram(t *testing.T) {
	// A folder with everything that is special in a SQLite URI.
	path := filepath.Join(t.TempDir(), "a b?c#d%41&é", "s.db")
	s := open(t, path)
	g := dreamcore.Game{ID: dreamcore.NewGameID(), Creator: "ann", Wish: "w"}
	if err := s.CreateGame(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := open(t, path).Game(t.Context(), g.ID); err != nil {
		t.Error(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if info.Mode().Perm() != 0o600 {
		t.Errorf("others may read the chats: %v", info.Mode())
	}
}

// TestKillLosesNothing writes from a second process, kills it with -9 in the
// middle of its work and finds everything of which it had said "stored".
func TestKillLosesNothing(t *testing.T) {
	if path := os.Getenv("STORE_KILL_TEST"); path != "" {
		writeForEver(t, path)
	}
	path := filepath.Join(t.TempDir(), "s.db")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, "-test.run=^TestKillLosesNothing$")
	cmd.Env = append(os.Environ(), "STORE_KILL_TEST="+path)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	buf := make([]byte, 64)
	for strings.Count(said.String(), ".") < 50 {
		n, err := out.Read(buf)
		if err != nil {
			t.Fatalf("the writer ended by itself: %v, after %q", err, said.String())
		}
		said.Write(buf[:n])
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed: that is its error
	s := open(t, path)
	list, err := s.Events(t.Context(), "job", 0, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	if len(list) < strings.Count(said.String(), ".") {
		t.Errorf("%d events are left of %d", len(list), strings.Count(said.String(), "."))
	}
	if e, err := s.AppendEvent(t.Context(), dreamcore.Event{Job: "job", Kind: dreamcore.EventSay}); err != nil || e.Seq != int64(len(list))+1 {
		t.Errorf("seq %d after %d: %v", e.Seq, len(list), err)
	}
}

func writeForEver(t *testing.T, path string) {
	s := open(t, path)
	g := dreamcore.Game{ID: "game", Creator: "ann"}
	j := dreamcore.Job{ID: "job", Game: "game", Creator: "ann", State: dreamcore.Queued}
	if err := s.Submit(t.Context(), &g, j, dreamcore.Message{Game: "game", Job: "job", Role: "creator"}); err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := s.AppendEvent(t.Context(), dreamcore.Event{Job: "job", Kind: dreamcore.EventSay}); err != nil {
			t.Fatal(err)
		}
		os.Stdout.WriteString(".")
	}
}

func TestMigrationsGoForwardOnly(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	s := open(t, path)
	if _, err := s.write.Exec(`UPDATE migrations SET digest = 'edited' WHERE number = 1`); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), path); dreamcore.CodeOf(err) != dreamcore.Conflict {
		t.Errorf("an edited migration: %v", err)
	}
	if _, err := s.write.Exec(`INSERT INTO migrations VALUES (9999, 'future', '', 0)`); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), path); dreamcore.CodeOf(err) != dreamcore.Conflict {
		t.Errorf("a newer database: %v", err)
	}
}

func TestTwoProcessesMayOpenOneFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	a, b := open(t, path), open(t, path)
	done := make(chan error, 2)
	for _, s := range []*Store{a, b} {
		go func() {
			var err error
			for range 30 {
				if e := s.CreateGame(t.Context(), dreamcore.Game{ID: dreamcore.NewGameID(), Creator: "ann"}); e != nil {
					err = e
				}
			}
			done <- err
		}()
	}
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if games, err := a.GamesBy(t.Context(), "ann", 100); err != nil || len(games) != 60 {
		t.Errorf("%d games, %v", len(games), err)
	}
}
