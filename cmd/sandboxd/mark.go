package main

import (
	"os"
	"path/filepath"

	"dreamcore/internal/envd"
)

// mark writes into dir what the box is told about itself, for programs that look
// there rather than at their variables. A box that is told nothing gets no folder.
func mark(dir string, env map[string]string) error {
	for _, name := range []string{envd.MarkSandbox, envd.MarkID, envd.MarkTemplate} {
		value, ok := env[name]
		if !ok {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, "."+name), []byte(value), 0o644); err != nil {
			return err
		}
	}
	return nil
}
