// Package recipe is the definition of the sandbox image: what goes into it
// (definition.json), the exact versions and digests (lock.json), and the
// licence notices that packages do not carry themselves (notices/).
package recipe

import "embed"

// Files are definition.json, lock.json and notices/.
//
//go:embed *.json notices
var Files embed.FS
