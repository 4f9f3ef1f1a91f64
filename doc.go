// Package dreamcore is the vocabulary of the project: the nouns that every
// other package speaks, and nothing that does any work.
//
// A person writes a wish; a Job boots one disposable sandbox in which an
// untrusted coding agent builds a game; the host verifies the result in a
// second, clean sandbox; what passes becomes an immutable Version of a Game.
//
// The package imports the standard library only, so everything may import it.
package dreamcore
