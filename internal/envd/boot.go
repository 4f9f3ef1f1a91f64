package envd

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
)

// The contract between a sandbox's PID 1 and the host that booted it, for
// sandboxd and the engine alike.
const (
	// Protocol is the version of this contract. An engine takes back only boxes
	// whose PID 1 has the same.
	Protocol = 1
	// ControlDir is where the host's folder is mounted in the box: read-only,
	// and closed to everybody but root.
	ControlDir = "/run/dreamcore"
	// BootFile in it holds the secret that PID 1 sends first; the host removes
	// it before any command runs. In a box that was restored it holds a nonce
	// instead, from which NextSecret makes the new secret out of the former.
	BootFile = "boot"
	// ControlSocket in it is dialled by PID 1 whenever it has no connection to the
	// host, which it then serves HTTP/2. It is there only while the host waits for
	// that call.
	ControlSocket = "control.sock"
	// EgressSocket in it is the one way out; every connection to RelayAddr in
	// the box is carried there.
	EgressSocket = "egress.sock"
	// RelayAddr is where programs in the box find the one way out.
	RelayAddr = "127.0.0.1:4000"
	// PrivatePath begins the requests that only the host itself makes; a router
	// must never let a client's request through that begins with it.
	PrivatePath = "/dreamcore/"
	// InitPath takes an Init and makes the box ready.
	InitPath = PrivatePath + "init"
	// WatchPath is told that the host counts what memory the box takes, and again,
	// each second or so, while that is much: then PID 1 watches closely.
	WatchPath = PrivatePath + "watch"
	// StatePath answers with a State.
	StatePath = PrivatePath + "state"
	// DialPath?port=N turns a request into a byte stream to that port of the
	// box's loopback.
	DialPath = PrivatePath + "dial"
)

// MemoryFolders are those folders of a box that are kept in its memory and that its
// user may write to.
var MemoryFolders = []string{"/workspace", "/tmp", "/dev/shm"}

// What a box tells its programs about itself where it serves others, in E2B's
// words: as variables, and as files in MarkDir whose names are theirs with a
// dot before.
const (
	MarkDir      = "/run/e2b"
	MarkSandbox  = "E2B_SANDBOX"
	MarkID       = "E2B_SANDBOX_ID"
	MarkTemplate = "E2B_TEMPLATE_ID"
)

// Init is what the host tells a booted box before it is used.
type Init struct {
	Env         map[string]string `json:"env"`
	Egress      bool              `json:"egress"`
	MemoryBytes int64             `json:"memoryBytes"` // 0: no watching
	// Sudo makes the user of the box its root's equal, and root's processes count
	// among those that may be ended when memory is short.
	Sudo bool `json:"sudo,omitempty"`
}

// NextSecret is the boot secret of a box that was restored from a snapshot. The
// nonce is in reach of root in the box, whose programs live already; the former
// secret is only in PID 1 and in the host's keeping, and so is the next.
func NextSecret(former, nonce []byte) []byte {
	m := hmac.New(sha256.New, former)
	m.Write(nonce)
	return []byte(hex.EncodeToString(m.Sum(nil)))
}
