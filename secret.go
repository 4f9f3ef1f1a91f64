package dreamcore

import "log/slog"

// Secret is a string that never prints. Reveal is the only way to its value,
// so that a search for "Reveal(" finds every place where a secret is used.
type Secret struct{ value string }

// NewSecret wraps value.
func NewSecret(value string) Secret { return Secret{value} }

// Reveal returns the value itself.
func (s Secret) Reveal() string { return s.value }

// IsZero reports whether there is no secret.
func (s Secret) IsZero() bool { return s.value == "" }

// String hides the value.
func (Secret) String() string { return "REDACTED" }

// GoString hides the value from %#v.
func (Secret) GoString() string { return "REDACTED" }

// MarshalText hides the value from encoders.
func (Secret) MarshalText() ([]byte, error) { return []byte("REDACTED"), nil }

// LogValue hides the value from structured logs.
func (Secret) LogValue() slog.Value { return slog.StringValue("REDACTED") }
