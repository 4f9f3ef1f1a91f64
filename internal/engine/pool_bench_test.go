package engine_test

import (
	"testing"
	"time"

	"dreamcore/internal/engine/enginetest"
	"dreamcore/internal/sandbox"
)

// From the request for a box, while one waits, to the end of its first command,
// beside one more command in it.
func BenchmarkPool(b *testing.B) {
	e := enginetest.Start(b, pooled(1))
	var create, first, live timing
	for b.Loop() {
		awaitWaiting(b, e, 1)
		time.Sleep(200 * time.Millisecond) // the boot ahead has calmed down
		var sb sandbox.Sandbox
		all := timed(b, func() (err error) {
			create = append(create, timed(b, func() (err error) {
				sb, err = e.Provider.Create(ctxOf(b), sandbox.Spec{Image: e.Image, Timeout: time.Minute})
				return err
			}))
			return trueIn(b, sb)()
		})
		first = append(first, all)
		for range 5 {
			live = append(live, timed(b, trueIn(b, sb)))
		}
		if err := e.Provider.Kill(ctxOf(b), sb.ID()); err != nil {
			b.Fatal(err)
		}
	}
	report(b, first, live, "command")
	b.ReportMetric(ms(create.at(0.5)), "ms-create")
}
