// Package games holds what every game is delivered with, as files: the SDK,
// the kit for 2D games, and vendored engines.
package games

import "embed"

// Files is sdk/, kit/ and, where there is one, vendor/. It is read-only.
//
//go:embed sdk kit
var Files embed.FS
