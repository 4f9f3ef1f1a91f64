// Package asset describes the fetching of pictures, sounds and models from hosts
// that an operator has listed.
package asset

import (
	"dreamcore/internal/keyproxy/provider"
	"dreamcore/internal/keyproxy/provider/npm"
)

// Operations are what asset hosts answer, by the names in the declarations.
func Operations() map[string]*provider.Operation {
	return map[string]*provider.Operation{"asset.fetch": {Kind: provider.Asset, Protocol: Protocol{}}}
}

// Protocol is plain HTTP with refusals of the same shape as the package mirror's.
type Protocol struct{ npm.Protocol }

// Name is "asset".
func (Protocol) Name() string { return "asset" }
