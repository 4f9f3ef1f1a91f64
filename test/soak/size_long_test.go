//go:build long

package soak

// How much `make test-long` does.
const (
	boxes       = 1000 // made, used and killed in a row
	kills       = 20   // of the server, by signal 9
	boxesPerRun = 50   // at most, between two kills
)
