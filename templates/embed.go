// Package templates holds the template library as files: 2d/NAME/ and
// 3d/NAME/, each a small complete game with its template.json.
package templates

import "embed"

// Files is the library. internal/template reads and validates it.
//
//go:embed [23]d
var Files embed.FS
