package publish

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"dreamcore"
	"dreamcore/internal/blob/fs"
	"dreamcore/internal/store/sqlite"
	"dreamcore/internal/tree"
)

const png = "\x89PNG\r\n\x1a\n picture"

// stage is a real store and real blobs with one running job.
type stage struct {
	*Publisher
	store *sqlite.Store
	blobs *fs.Store
	job   dreamcore.Job
	log   *strings.Builder
}

func newStage(t *testing.T) *stage {
	t.Helper()
	ctx, dir := t.Context(), t.TempDir()
	db, err := sqlite.Open(ctx, filepath.Join(dir, "s.db"))
	if err != nil {
		t.Fatal(err)
	}
	blobs, err := fs.Open(filepath.Join(dir, "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := errors.Join(db.Close(), blobs.Close()); err != nil {
			t.Error(err)
		}
	})
	g := dreamcore.Game{ID: dreamcore.NewGameID(), Creator: "ann", Wish: "a flying cat", Lang: "en"}
	j := dreamcore.Job{ID: dreamcore.NewJobID(), Game: g.ID, Creator: "ann", Wish: g.Wish, Lang: "en", State: dreamcore.Queued}
	if err := db.Submit(ctx, &g, j, dreamcore.Message{Game: g.ID, Job: j.ID, Role: "creator", Text: g.Wish}); err != nil {
		t.Fatal(err)
	}
	j, err = db.UpdateJob(ctx, j.ID, 0, func(j *dreamcore.Job) error {
		j.State, j.Attempt = dreamcore.Running, 1
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var log strings.Builder
	return &stage{&Publisher{blobs, db, slog.New(slog.NewTextHandler(&log, nil))}, db, blobs, j, &log}
}

func game(t *testing.T, files ...tree.File) *tree.Tree {
	t.Helper()
	tr, err := tree.New(files, tree.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	return tr
}

func passed() dreamcore.Evidence {
	r := dreamcore.Report{Verdict: dreamcore.Pass}
	return dreamcore.Evidence{
		Check: r, Level: r, Play: dreamcore.PlayReport{Report: r, Poster: "poster.png"},
		Pictures: map[string][]byte{"poster.png": []byte(png)},
	}
}

var page = tree.File{Path: "index.html", Data: []byte("<!doctype html><title>Sky &amp; Cat</title>")}

func TestPublish(t *testing.T) {
	s := newStage(t)
	r := Request{Job: s.job, Tree: game(t, page, tree.File{Path: "a.js", Data: []byte("1")}), Evidence: passed()}
	v, err := s.Publish(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	g, err := s.store.Game(t.Context(), s.job.Game)
	if err != nil || g.Current != v.ID || g.Title != "Sky & Cat" {
		t.Errorf("%+v, %v", g, err)
	}
	for _, f := range v.Files {
		want, _ := r.Tree.Lookup(f.Path)
		if got, err := s.blobs.Get(t.Context(), f.Hash, f.SizeBytes); err != nil || string(got) != string(want) {
			t.Errorf("%s: %q, %v", f.Path, got, err)
		}
	}
	if got, err := s.blobs.Get(t.Context(), v.Evidence.PictureHashes["poster.png"], 100); err != nil || string(got) != png {
		t.Errorf("poster: %q, %v", got, err)
	}
	// A step that runs twice.
	again, err := s.Publish(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(v, again); diff != "" {
		t.Error(diff)
	}
	if n := strings.Count(s.log.String(), "job_id="+string(s.job.ID)); n != 2 {
		t.Errorf("%d lines in the log: %s", n, s.log)
	}
}

func TestEqualFilesOfTwoGamesAreTwoVersions(t *testing.T) {
	files := []dreamcore.VersionFile{{Path: "index.html", Hash: "a", SizeBytes: 1}}
	ids := map[dreamcore.VersionID]bool{}
	for _, game := range []dreamcore.GameID{"g1", "g2"} {
		for _, job := range []dreamcore.JobID{"j1", "j2"} {
			ids[VersionID(game, job, files)] = true
		}
	}
	if len(ids) != 4 {
		t.Errorf("%d ids", len(ids))
	}
}

func TestWhatMustNotBePublishedIsNot(t *testing.T) {
	failed := passed()
	failed.Play.Verdict = dreamcore.Failed
	noPicture := passed()
	noPicture.Pictures = map[string][]byte{"x.png": []byte("<svg onload=alert(1)>")}
	tooMany := passed()
	for i := range MaxPictures + 1 {
		tooMany.Pictures[fmt.Sprint(i)] = []byte(png)
	}
	stale := func(j dreamcore.Job) dreamcore.Job { j.Attempt = 9; return j }
	same := func(j dreamcore.Job) dreamcore.Job { return j }
	for name, c := range map[string]struct {
		files    []tree.File
		evidence dreamcore.Evidence
		job      func(dreamcore.Job) dreamcore.Job
		want     dreamcore.Code
	}{
		"no index.html":   {[]tree.File{{Path: "main.html"}}, passed(), same, dreamcore.Invalid},
		"not verified":    {[]tree.File{page}, failed, same, dreamcore.Refused},
		"no evidence":     {[]tree.File{page}, dreamcore.Evidence{}, same, dreamcore.Refused},
		"no picture":      {[]tree.File{page}, noPicture, same, dreamcore.Refused},
		"pictures galore": {[]tree.File{page}, tooMany, same, dreamcore.Refused},
		"stale attempt":   {[]tree.File{page}, passed(), stale, dreamcore.Conflict},
	} {
		t.Run(name, func(t *testing.T) {
			s := newStage(t)
			_, err := s.Publish(t.Context(), Request{Job: c.job(s.job), Tree: game(t, c.files...), Evidence: c.evidence})
			if dreamcore.CodeOf(err) != c.want {
				t.Errorf("got %v, want %s", err, c.want)
			}
			s.wantNothing(t)
		})
	}
}

func (s *stage) wantNothing(t *testing.T) {
	t.Helper()
	g, err := s.store.Game(t.Context(), s.job.Game)
	if err != nil || g.Current != "" {
		t.Errorf("current is %q, %v", g.Current, err)
	}
	if list, err := s.store.Versions(t.Context(), g.ID); err != nil || len(list) != 0 {
		t.Errorf("%d versions, %v", len(list), err)
	}
}

func TestC13ASecretInTheTreeBlocksPublishing(t *testing.T) {
	s := newStage(t)
	const grant = "grant-9f8e7d6c5b4a"
	_, err := s.Publish(t.Context(), Request{
		Job: s.job, Tree: game(t, page, tree.File{Path: "x.js", Data: []byte("//" + grant)}),
		Evidence: passed(), Canaries: []string{grant},
	})
	var b *Blocked
	if !errors.As(err, &b) || len(b.Findings) != 1 || b.Findings[0].Code != "secret_canary" {
		t.Fatal(err)
	}
	if strings.Contains(err.Error(), grant) {
		t.Error("the error repeats the secret")
	}
	s.wantNothing(t)
}

func TestC06AStoreThatFailsPublishesNothing(t *testing.T) {
	s := newStage(t)
	full := errors.New("no space left on device")
	s.Blobs = &filling{Blobs: s.blobs, left: 1, err: full}
	r := Request{Job: s.job, Tree: game(t, page, tree.File{Path: "a.js"}), Evidence: passed()}
	if _, err := s.Publish(t.Context(), r); !errors.Is(err, full) {
		t.Fatal(err)
	}
	s.wantNothing(t)
	s.Blobs = s.blobs // and the step that runs again succeeds
	if _, err := s.Publish(t.Context(), r); err != nil {
		t.Error(err)
	}
}

type filling struct {
	Blobs
	left int
	err  error
}

func (f *filling) Put(ctx context.Context, data []byte) (dreamcore.BlobHash, error) {
	if f.left--; f.left < 0 {
		return "", f.err
	}
	return f.Blobs.Put(ctx, data)
}

func TestTitle(t *testing.T) {
	for page, want := range map[string]string{
		"<title>Cat</title>":                              "Cat",
		"<TITLE lang=en>\n Sky \t\n Cat </TITLE>":         "Sky Cat",
		"<title>&lt;script&gt;alert(1)&lt;/script&gt;":    "<script>alert(1)</script>",
		"<title></title>":                                 "the wish",
		"<title>  \u200b\u202e </title>":                  "the wish",
		"":                                                "the wish",
		"<!-- <title>no</title> --><title>yes</title>":    "yes",
		"<script>'<title>no</title>'</script><title>yes":  "yes",
		"<body><svg><title>no</title></svg>":              "the wish",
		"<title>a\u202eb\x00c</title>":                    "abc",
		"<title>" + strings.Repeat("猫", 200) + "</title>": strings.Repeat("猫", MaxTitleRunes-1) + "…",
		"<title>\xff\xfeok</title>":                       "ok",
	} {
		if got := Title(game(t, tree.File{Path: "index.html", Data: []byte(page)}), " the\nwish "); got != want {
			t.Errorf("%.60q: got %q, want %q", page, got, want)
		}
	}
}

func FuzzTitle(f *testing.F) {
	f.Add("<title>x</title>", "w")
	f.Fuzz(func(t *testing.T, page, wish string) {
		tr, err := tree.New([]tree.File{{Path: "index.html", Data: []byte(page)}}, tree.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		got := Title(tr, wish)
		if !utf8.ValidString(got) || utf8.RuneCountInString(got) > MaxTitleRunes || strings.ContainsAny(got, "\n\r\x00\u202e") {
			t.Fatalf("%q", got)
		}
	})
}
