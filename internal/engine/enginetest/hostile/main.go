// Command hostile is what PID 1 of a box may not be: it proves itself and makes
// the box ready as sandboxd does, and then does to the host, for as long as the
// connection lasts, what a request for /files?path=WHAT asks for. Tests boot it
// in real boxes.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"dreamcore/internal/envd"
)

func main() {
	secret, err := os.ReadFile(filepath.Join(envd.ControlDir, envd.BootFile))
	for err == nil {
		if err = run(secret); errors.Is(err, errAgain) {
			err = nil
		}
	}
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// errAgain asks for another connection.
var errAgain = errors.New("again")

// dial waits for the host, which listens when it wants to be called.
func dial() (conn net.Conn, err error) {
	for range 3000 {
		if conn, err = net.Dial("unix", filepath.Join(envd.ControlDir, envd.ControlSocket)); err == nil {
			return conn, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, err
}

// run returns when the connection is over.
func run(secret []byte) error {
	conn, err := dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.Write(append(secret, '\n')); err != nil {
		return err
	}
	if _, err := io.ReadFull(conn, make([]byte, len(http2.ClientPreface))); err != nil {
		return err
	}
	fr := http2.NewFramer(conn, conn)
	fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if err := fr.WriteSettings(); err != nil {
		return err
	}
	for {
		f, err := fr.ReadFrame()
		if err != nil {
			return err
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				err = fr.WriteSettingsAck()
			}
		case *http2.MetaHeadersFrame:
			u, perr := url.Parse(f.PseudoValue("path"))
			if perr != nil {
				return perr
			}
			what := u.Query().Get("path")
			if u.Path == "/files" && floods[what] != nil {
				return flood(conn, floods[what](f.StreamID))
			}
			if u.Path == "/files" && (what == "goaway" || what == "goaway-for-good") {
				if err := fr.WriteGoAway(f.StreamID, http2.ErrCodeNo, nil); err != nil {
					return err
				}
				_, _ = io.Copy(io.Discard, conn) // until the host hangs up
				if what == "goaway" {
					return errAgain
				}
				time.Sleep(time.Hour) // it lives, and calls nobody
			}
			err = fr.WriteHeaders(http2.HeadersFrameParam{StreamID: f.StreamID, EndHeaders: true, EndStream: true, BlockFragment: fields(":status", "204")})
		}
		if err != nil {
			return err
		}
	}
}

// flood writes the same again and again and reads nothing.
func flood(conn net.Conn, f frames) error {
	if _, err := conn.Write(f.first); err != nil {
		return err
	}
	again := bytes.Repeat(f.again, max(1, (256<<10)/max(len(f.again), 1)))
	for {
		if _, err := conn.Write(again); err != nil {
			return err
		}
	}
}

// frames are what a flood begins with and what it repeats for ever.
type frames struct{ first, again []byte }

var floods = map[string]func(stream uint32) frames{
	"pings": repeat(func(fr *http2.Framer, _ uint32) error { return fr.WritePing(false, [8]byte{1}) }),
	"settings": repeat(func(fr *http2.Framer, _ uint32) error {
		return fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1 << 20})
	}),
	"windows": repeat(func(fr *http2.Framer, _ uint32) error { return fr.WriteWindowUpdate(0, 1) }),
	"unknown": repeat(func(fr *http2.Framer, _ uint32) error { return fr.WriteRawFrame(0xbe, 0, 0, make([]byte, 1000)) }),
	"resets":  repeat(func(fr *http2.Framer, _ uint32) error { return fr.WriteRSTStream(1, http2.ErrCodeCancel) }),
	"hints": repeat(func(fr *http2.Framer, s uint32) error {
		return head(fr, s, ":status", "103", "link", strings.Repeat("x", 500))
	}),
	"headers": func(s uint32) frames {
		return frames{
			write(func(fr *http2.Framer) error {
				return fr.WriteHeaders(http2.HeadersFrameParam{StreamID: s, BlockFragment: fields(":status", "200")})
			}),
			write(func(fr *http2.Framer) error {
				return fr.WriteContinuation(s, false, fields("x", strings.Repeat("y", 1000)))
			}),
		}
	},
	"body": func(s uint32) frames {
		return frames{
			write(func(fr *http2.Framer) error { return head(fr, s, ":status", "200") }),
			write(func(fr *http2.Framer) error { return fr.WriteData(s, false, make([]byte, 16<<10)) }),
		}
	},
	"nothings": func(s uint32) frames {
		return frames{
			write(func(fr *http2.Framer) error { return head(fr, s, ":status", "200") }),
			write(func(fr *http2.Framer) error { return fr.WriteData(s, false, nil) }),
		}
	},
}

func repeat(f func(*http2.Framer, uint32) error) func(uint32) frames {
	return func(s uint32) frames {
		return frames{again: write(func(fr *http2.Framer) error { return f(fr, s) })}
	}
}

func head(fr *http2.Framer, stream uint32, pairs ...string) error {
	return fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, EndHeaders: true, BlockFragment: fields(pairs...)})
}

// write encodes frames; to memory, which cannot fail.
func write(f func(*http2.Framer) error) []byte {
	var b bytes.Buffer
	if err := f(http2.NewFramer(&b, nil)); err != nil {
		panic(err)
	}
	return b.Bytes()
}

func fields(pairs ...string) []byte {
	var b bytes.Buffer
	enc := hpack.NewEncoder(&b)
	enc.SetMaxDynamicTableSize(0) // each block stands for itself
	for i := 0; i+1 < len(pairs); i += 2 {
		_ = enc.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]}) // to memory
	}
	return b.Bytes()
}
