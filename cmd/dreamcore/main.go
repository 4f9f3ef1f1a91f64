// Dreamcore makes games from wishes: one binary for the command line and for
// the service.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"

	"dreamcore/internal/app"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// A second Ctrl-C ends the process at once; its leftovers go at the next start.
	// The same one may arrive twice, as a signal to the process and to its group.
	context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, stop) })
	code := app.Run(ctx, app.SystemTerminal(), os.Args[1:])
	stop()
	os.Exit(code)
}
