// Package games holds what every game is delivered with, as files: the SDK,
// the kit for 2D games, and vendored engines.
package games

import "embed"

// Files is sdk/, kit/ and vendor/.
//
//go:embed sdk kit vendor
var Files embed.FS
