package engine

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// machine reads how this machine fares. proc is its /proc; tests have their own.
type machine struct{ proc string }

// load is how a machine fares at one moment.
type load struct {
	totalBytes, freeBytes int64 // of memory; free is what programs could still get
	// How many percent of the latest ten seconds somebody waited for memory and for
	// the processor. 0 where the kernel does not tell.
	memoryStall, cpuStall float64
}

func (m machine) load() (load, error) {
	data, err := os.ReadFile(filepath.Join(m.proc, "meminfo"))
	if err != nil {
		return load{}, fmt.Errorf("read this machine's memory: %w", err)
	}
	var l load
	var ok1, ok2 bool
	l.totalBytes, ok1 = meminfo(data, "MemTotal:")
	l.freeBytes, ok2 = meminfo(data, "MemAvailable:")
	if !ok1 || !ok2 || l.totalBytes <= 0 {
		return load{}, errors.New("read this machine's memory: meminfo lacks MemTotal or MemAvailable")
	}
	l.memoryStall, l.cpuStall = m.stall("memory"), m.stall("cpu")
	return l, nil
}

// stall reads the kernel's pressure file of a resource.
func (m machine) stall(resource string) float64 {
	data, err := os.ReadFile(filepath.Join(m.proc, "pressure", resource))
	if err != nil {
		return 0 // older kernels have none, and some have it switched off
	}
	_, rest, _ := bytes.Cut(data, []byte("some avg10="))
	number, _, _ := bytes.Cut(rest, []byte(" "))
	v, err := strconv.ParseFloat(string(number), 64)
	if err != nil {
		return 0
	}
	return v
}

// meminfo finds one line of a meminfo file and returns its value in bytes.
func meminfo(data []byte, key string) (int64, bool) {
	for line := range bytes.Lines(data) {
		if rest, ok := bytes.CutPrefix(line, []byte(key)); ok {
			f := bytes.Fields(rest)
			if len(f) == 0 {
				return 0, false
			}
			n, err := strconv.ParseInt(string(f[0]), 10, 64)
			return n << 10, err == nil
		}
	}
	return 0, false
}
