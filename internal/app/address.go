package app

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// engineAddress is what a running engine leaves in its folder, so that the
// commands of the same user find it. It holds the key: its file is the owner's
// alone.
type engineAddress struct {
	APIURL   string `json:"api_url,omitempty"`
	Socket   string `json:"socket,omitempty"`    // Unix socket that is dialled instead
	CertFile string `json:"cert_file,omitempty"` // certificates to trust for APIURL
	Domain   string `json:"domain,omitempty"`    // of the sandboxes' host names
	APIKey   string `json:"api_key"`
	PID      int    `json:"pid"` // the engine's process, for people
}

const addressFile = "address.json"

// leave writes a into folder, whole or not at all.
func (a engineAddress) leave(folder string) error {
	data, err := json.MarshalIndent(a, "", "  ")
	if err != nil {
		return fmt.Errorf("leave the engine's address: %w", err)
	}
	f, err := os.CreateTemp(folder, addressFile+".*") // 0600
	if err != nil {
		return fmt.Errorf("leave the engine's address: %w", err)
	}
	_, err = f.Write(append(data, '\n'))
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), filepath.Join(folder, addressFile))
	}
	if err != nil {
		return errors.Join(fmt.Errorf("leave the engine's address: %w", err), os.Remove(f.Name()))
	}
	return nil
}

// findAddress reads the address that an engine left in folder. That the engine
// still runs is not known: one that was killed leaves it behind.
func findAddress(folder string) (engineAddress, error) {
	var a engineAddress
	data, err := os.ReadFile(filepath.Join(folder, addressFile))
	if err != nil {
		return a, err
	}
	if err := json.Unmarshal(data, &a); err != nil {
		return a, fmt.Errorf("read the engine's address: %w", err)
	}
	return a, nil
}

// takeAddress removes the address of an engine that ends.
func takeAddress(folder string) error {
	if err := os.Remove(filepath.Join(folder, addressFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove the engine's address: %w", err)
	}
	return nil
}
