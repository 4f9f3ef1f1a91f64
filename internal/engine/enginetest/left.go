package enginetest

import "dreamcore/internal/engine"

// Left is engine.Left.
func Left(dir string) ([]string, error) { return engine.Left(dir) }

// Groups is engine.Groups.
func Groups(dir string) ([]string, error) { return engine.Groups(dir) }
