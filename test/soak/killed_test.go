package soak

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"dreamcore"
	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox"
)

// seed decides when the server is killed; a failure is run again with it.
const seed = 20260930

// The same, with the server killed by signal 9 at random moments: once the next
// one has opened, nothing is left of the boxes of the dead one.
func TestKilledServer(t *testing.T) {
	random := rand.New(rand.NewPCG(seed, 1))
	dir := t.TempDir()
	total := 0
	for round := range kills {
		s := start(t, order{Dir: dir})
		nothing(t, dir)
		held := s.hold()
		total += s.killedWhileUsed(random)
		if left, err := enginetest.Left(dir); err != nil || len(left) == 0 {
			t.Errorf("round %d: the killed server left nothing at all (%v): this test proves nothing", round, err)
		}
		next := start(t, order{Dir: dir})
		nothing(t, dir)
		for _, id := range held {
			if _, err := next.provider.Connect(t.Context(), id); dreamcore.CodeOf(err) != dreamcore.Lost {
				t.Errorf("round %d: a box of the dead server: %v", round, err)
			}
		}
		next.close()
		nothing(t, dir)
	}
	t.Logf("%d kills, %d boxes used meanwhile, seed %d", kills, total, seed)
}

// The same with a server that keeps its boxes: the next one takes back those
// that were ready, with what runs in them, and nothing is left of the others.
func TestKilledServerKeeps(t *testing.T) {
	random := rand.New(rand.NewPCG(seed, 2))
	dir := t.TempDir()
	var held []dreamcore.SandboxID
	used, back := 0, 0
	for round := range kills {
		s := start(t, order{Dir: dir, Keep: true})
		back += s.takenBack(held, round)
		if round%2 == 1 {
			held = nil
			s.killAll()
			nothing(t, dir)
		}
		held = append(held, s.hold()...)
		used += s.killedWhileUsed(random)
	}
	s := start(t, order{Dir: dir, Keep: true})
	back += s.takenBack(held, kills)
	s.killAll()
	nothing(t, dir)
	s.close()
	nothing(t, dir)
	t.Logf("%d kills, %d boxes used meanwhile, %d taken back, seed %d", kills, used, back, seed)
}

// takenBack checks every box that the server found, and that held are among
// them. It returns how many there are.
func (s *server) takenBack(held []dreamcore.SandboxID, round int) int {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	infos, err := s.provider.List(ctx, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	there := map[dreamcore.SandboxID]bool{}
	for _, info := range infos {
		there[info.ID] = true
		sb, err := s.provider.Connect(ctx, info.ID)
		if err == nil {
			_, err = sandbox.Run(ctx, sb, sandbox.Command{Args: []string{"true"}}, 10)
		}
		if err != nil {
			s.t.Errorf("round %d: %s was taken back and is of no use: %v", round, info.ID, err)
		}
	}
	for _, id := range held {
		sb, err := s.provider.Connect(ctx, id)
		if !there[id] || err != nil {
			s.t.Errorf("round %d: %s is gone (%v)", round, id, err)
			continue
		}
		res, err := sandbox.Run(ctx, sb, sandbox.Command{Args: []string{"sh", "-c", "cat /workspace/held; pgrep -cfx 'sleep 8002'"}}, 100)
		if err != nil || string(res.Stdout) != string(id)+"1\n" {
			s.t.Errorf("round %d: %s says %q %q, %v", round, id, res.Stdout, res.Stderr, err)
		}
	}
	return len(infos)
}

func (s *server) killAll() {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	infos, err := s.provider.List(ctx, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, info := range infos {
		if err := s.provider.Kill(ctx, info.ID); err != nil {
			s.t.Error(err)
		}
	}
}

// hold makes boxes that are alive when the server dies.
func (s *server) hold() []dreamcore.SandboxID {
	s.t.Helper()
	var ids []dreamcore.SandboxID
	for i := range 3 {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		sb, err := s.provider.Create(ctx, sandbox.Spec{Image: s.image, Timeout: time.Hour, Metadata: map[string]string{"held": fmt.Sprint(i)}})
		if err != nil {
			s.t.Fatal(err)
		}
		if err := sb.WriteFiles(ctx, []sandbox.File{{Path: "/workspace/held", Data: []byte(sb.ID())}}); err != nil {
			s.t.Fatal(err)
		}
		if _, err := sb.Start(ctx, sandbox.Command{Args: []string{"sleep", "8002"}}); err != nil {
			s.t.Fatal(err)
		}
		ids = append(ids, sb.ID())
	}
	return ids
}

// killedWhileUsed uses boxes and kills the server in the middle of it. It
// returns how many boxes were used to their end.
func (s *server) killedWhileUsed(random *rand.Rand) int {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
	defer cancel()
	var used, dead atomic.Int64
	enough := int64(1 + random.IntN(boxesPerRun))
	reached := make(chan struct{}, 2*workers)
	var wg sync.WaitGroup
	for w := range workers {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := w; ; i += workers {
				if err := s.use(ctx, i); err != nil {
					if dead.Load() == 0 {
						s.t.Errorf("box %d: %v", i, err)
					}
					reached <- struct{}{}
					return
				}
				if used.Add(1) == enough {
					reached <- struct{}{}
				}
			}
		}()
	}
	<-reached
	// In the middle of whatever the others do by now.
	time.Sleep(time.Duration(random.IntN(400)) * time.Millisecond)
	dead.Store(1)
	s.kill()
	cancel()
	wg.Wait()
	return int(used.Load())
}
