package dreamcore

import "time"

// Game is what a creator owns: a title, a chat, versions and one public URL.
type Game struct {
	ID      GameID    `json:"id"`
	Creator CreatorID `json:"creator"`
	Title   string    `json:"title"` // from the game's own page; untrusted text
	Wish    string    `json:"wish"`  // the first message; untrusted text
	Lang    Lang      `json:"lang"`
	Current VersionID `json:"current"` // "" until the first version is published
	Created time.Time `json:"created"`
	Updated time.Time `json:"updated"`
	Removed time.Time `json:"removed,omitzero"` // when it was taken down; zero while it may be seen
}

// Version is an immutable snapshot of a collected project/.
type Version struct {
	ID       VersionID     `json:"id"`
	Game     GameID        `json:"game"`
	Job      JobID         `json:"job"`
	Number   int           `json:"number"` // 1, 2, 3 ... within the game
	Files    []VersionFile `json:"files"`  // sorted by path
	Evidence Evidence      `json:"evidence"`
	Created  time.Time     `json:"created"`
}

// VersionFile is one file of a version; its bytes are in the blob store.
type VersionFile struct {
	Path      string   `json:"path"` // relative, slashes
	Hash      BlobHash `json:"hash"`
	SizeBytes int64    `json:"sizeBytes"`
}

// Message is one line of a game's chat.
type Message struct {
	Game    GameID    `json:"game"`
	Job     JobID     `json:"job"`  // the job that it started or that answered
	Role    string    `json:"role"` // "creator" or "dreamcore"
	Text    string    `json:"text"` // untrusted when the role is "creator"
	Created time.Time `json:"created"`
}
