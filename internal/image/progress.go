package image

import (
	"os"

	"dreamcore"
	"dreamcore/internal/text"
	"golang.org/x/sys/unix"
)

// Stage is a part of the work that a progress display names.
type Stage string

// The stages of a build, in their order; an import or verification has some.
const (
	StagePrepare  Stage = "prepare"  // what the machine has, the store's lock
	StageIndex    Stage = "index"    // the mirrors' lists, choosing versions
	StageDownload Stage = "download" // Debian packages; bytes
	StageNPM      Stage = "npm"      // npm packages
	StageInstall  Stage = "install"  // packages into the new root
	StageFinish   Stage = "finish"   // trimming, users, notices
	StageArchive  Stage = "archive"  // reading or writing an export; bytes
	StageDigest   Stage = "digest"   // hashing the tree; bytes
)

// Progress is one step of a long operation. Total is 0 while it is not known.
type Progress struct {
	Stage       Stage
	Done, Total int64
}

// Text names the stage for people.
func (p Progress) Text(lang dreamcore.Lang) string {
	return text.T(lang, "image.stage_"+string(p.Stage))
}

func report(f func(Progress), stage Stage, done, total int64) {
	if f != nil {
		f(Progress{stage, done, total})
	}
}

func syncfs(f *os.File) error { return unix.Syncfs(int(f.Fd())) }
