// Command toolkit is what the host writes into every sandbox: check, level,
// playtest and image in one static binary, picked by the name that it is called
// by or by its first argument.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"

	"dreamcore/internal/toolkit"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := toolkit.Main(ctx, os.Args, toolkit.Env{Stdout: os.Stdout, Stderr: os.Stderr})
	stop()
	os.Exit(code)
}
