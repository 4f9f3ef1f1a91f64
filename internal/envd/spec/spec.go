// Package spec holds the definition of the in-sandbox protocol and what protoc
// makes of it. The generated files are committed: building DreamCore needs no
// protoc.
package spec

//go:generate protoc --go_out=. --go_opt=paths=source_relative --connect-go_out=. --connect-go_opt=paths=source_relative process/process.proto filesystem/filesystem.proto
