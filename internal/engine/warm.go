package engine

// warmth says what a warm snapshot was made of, and so whether it still fits.
type warmth struct {
	Sandboxd string `json:"sandboxd"` // digest
	Runsc    string `json:"runsc"`    // digest
	Command  string `json:"command"`  // digest of the warm-up
}
