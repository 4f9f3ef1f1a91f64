// Package publish owns the last step of a job: it turns a validated, verified
// tree into an immutable version and makes that the game's current one. Nothing
// of it is visible before the store's one atomic step, and the whole of it may
// be run twice.
package publish

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"maps"
	"strings"

	"dreamcore"
	"dreamcore/internal/text"
	"dreamcore/internal/tree"
)

// Bounds of the pictures that come with a version's evidence.
const (
	MaxPictures     = 32
	MaxPictureBytes = 12 << 20
)

// Blobs is where the bytes go.
type Blobs interface {
	Put(ctx context.Context, data []byte) (dreamcore.BlobHash, error)
	Get(ctx context.Context, hash dreamcore.BlobHash, limitBytes int64) ([]byte, error)
}

// Versions is the atomic step; see store.Versions.
type Versions interface {
	Publish(ctx context.Context, v dreamcore.Version, title string, attempt int) (dreamcore.Version, error)
}

// Publisher publishes. Log receives one line a decision.
type Publisher struct {
	Blobs    Blobs
	Versions Versions
	Log      *slog.Logger
}

// Request is what one job hands in.
type Request struct {
	Job      dreamcore.Job // running; its Attempt must be the current one
	Tree     *tree.Tree
	Evidence dreamcore.Evidence // with Pictures; its verdict must be PASS
	Canaries []string           // values that must not be in the tree: the job's grant, planted ones
}

// Blocked is the error for a tree in which something was found that must never
// be public. Its findings are FAILs in the job's language.
type Blocked struct{ Findings []dreamcore.Finding }

// Error names the first finding.
func (b *Blocked) Error() string {
	return fmt.Sprintf("publish: blocked by %d findings, the first is %s in %q", len(b.Findings), b.Findings[0].Code, b.Findings[0].File)
}

// Publish stores the tree and makes it the game's current version. Code Refused
// is for what did not pass verification, *Blocked for secrets in the tree,
// Conflict for a job that is no longer running at this attempt.
func (p *Publisher) Publish(ctx context.Context, r Request) (dreamcore.Version, error) {
	v, err := p.publish(ctx, r)
	log := p.Log.With("job_id", string(r.Job.ID), "decision", "publish")
	if err != nil {
		return v, err
	}
	log.Info("version is current", "reason", "verified", "version", string(v.ID), "number", v.Number, "files", len(v.Files))
	return v, nil
}

func (p *Publisher) publish(ctx context.Context, r Request) (dreamcore.Version, error) {
	const op = "publish"
	lang := r.Job.Lang
	if _, ok := r.Tree.Lookup("index.html"); !ok {
		return dreamcore.Version{}, &dreamcore.Error{
			Code: dreamcore.Invalid, Op: op,
			Msg: text.T(lang, "publish.no_index"), Hint: text.T(lang, "publish.no_index_hint"),
		}
	}
	if v := r.Evidence.Verdict(); v != dreamcore.Pass {
		return dreamcore.Version{}, &dreamcore.Error{
			Code: dreamcore.Refused, Op: op,
			Msg: text.T(lang, "publish.not_verified"), Hint: text.T(lang, "publish.not_verified_hint"),
		}
	}
	if found := tree.Scan(r.Tree, lang, r.Canaries); len(found) > 0 {
		return dreamcore.Version{}, &Blocked{found}
	}
	v := dreamcore.Version{Game: r.Job.Game, Job: r.Job.ID, Evidence: r.Evidence}
	var err error
	if v.Files, err = p.Keep(ctx, r.Tree); err != nil {
		return dreamcore.Version{}, err
	}
	v.ID = VersionID(v.Game, v.Job, v.Files)
	if err := p.KeepPictures(ctx, &v.Evidence); err != nil {
		return dreamcore.Version{}, err
	}
	v, err = p.Versions.Publish(ctx, v, Title(r.Tree, r.Job.Wish), r.Job.Attempt)
	if err != nil {
		return dreamcore.Version{}, fmt.Errorf("publish: %w", err)
	}
	return v, nil
}

// Keep stores the files of a snapshot, before anything of it is published: a
// job that is interrupted after verification needs no sandbox to go on.
func (p *Publisher) Keep(ctx context.Context, t *tree.Tree) ([]dreamcore.VersionFile, error) {
	files := make([]dreamcore.VersionFile, 0, len(t.Files))
	for _, f := range t.Files {
		h, err := p.Blobs.Put(ctx, f.Data)
		if err != nil {
			return nil, fmt.Errorf("store %q: %w", f.Path, err)
		}
		files = append(files, dreamcore.VersionFile{Path: f.Path, Hash: h, SizeBytes: int64(len(f.Data))})
	}
	return files, nil
}

// Load reads back what Keep stored.
func (p *Publisher) Load(ctx context.Context, files []dreamcore.VersionFile) ([]tree.File, error) {
	out := make([]tree.File, 0, len(files))
	for _, f := range files {
		data, err := p.Blobs.Get(ctx, f.Hash, f.SizeBytes)
		if err != nil {
			return nil, fmt.Errorf("read %q: %w", f.Path, err)
		}
		out = append(out, tree.File{Path: f.Path, Data: data})
	}
	return out, nil
}

// KeepPictures stores the evidence's pictures and leaves their hashes in ev.
// They come out of a sandbox, so each must at least begin like a picture, and is
// only ever served as one.
func (p *Publisher) KeepPictures(ctx context.Context, ev *dreamcore.Evidence) error {
	if len(ev.Pictures)+len(ev.PictureHashes) > MaxPictures {
		return dreamcore.Errorf(dreamcore.Refused, "publish.pictures", "%d pictures are more than %d", len(ev.Pictures), MaxPictures)
	}
	hashes := maps.Clone(ev.PictureHashes)
	if hashes == nil {
		hashes = map[string]dreamcore.BlobHash{}
	}
	for name, data := range ev.Pictures {
		if len(data) > MaxPictureBytes || PictureType(data) == "" || len(name) > 200 {
			return dreamcore.Errorf(dreamcore.Refused, "publish.pictures", "%.200q is no picture of at most %d bytes", name, MaxPictureBytes)
		}
		h, err := p.Blobs.Put(ctx, data)
		if err != nil {
			return fmt.Errorf("store picture: %w", err)
		}
		hashes[name] = h
	}
	ev.PictureHashes, ev.Pictures = hashes, nil
	return nil
}

// PictureType returns the media type of a PNG, GIF, WebP or JPEG by its first
// bytes, "" for anything else.
func PictureType(data []byte) string {
	switch {
	case bytes.HasPrefix(data, []byte("\x89PNG\r\n\x1a\n")):
		return "image/png"
	case bytes.HasPrefix(data, []byte("GIF87a")), bytes.HasPrefix(data, []byte("GIF89a")):
		return "image/gif"
	case len(data) >= 12 && string(data[:4]) == "RIFF" && string(data[8:12]) == "WEBP":
		return "image/webp"
	case bytes.HasPrefix(data, []byte("\xff\xd8\xff")):
		return "image/jpeg"
	}
	return ""
}

// VersionID names a version by what is in it and where it belongs. Game and job
// are part of it: two games with equal files are two versions.
func VersionID(game dreamcore.GameID, job dreamcore.JobID, files []dreamcore.VersionFile) dreamcore.VersionID {
	sum := sha256.Sum256([]byte(strings.Join([]string{"dreamcore version 1", string(game), string(job), tree.ListDigest(files)}, "\n")))
	return dreamcore.VersionID(hex.EncodeToString(sum[:]))
}
