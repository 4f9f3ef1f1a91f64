//go:build !long

package soak

// How much `make test` does; `make test-long` does ten times as much.
const (
	boxes       = 100 // made, used and killed in a row
	kills       = 2   // of the server, by signal 9
	boxesPerRun = 12  // at most, between two kills
)
