package app

import (
	"context"

	"dreamcore"
	"dreamcore/internal/job"
	"dreamcore/internal/publish"
	"dreamcore/internal/template"
	"dreamcore/internal/tree"
)

// library is the template library as a job sees it.
type library struct{ *template.Library }

func (l library) Match(firstLine string) (job.Template, string, bool) {
	t, reason := l.Library.Match(firstLine)
	if t.Tag == "" {
		return job.Template{}, string(reason), false
	}
	return job.Template{Tag: t.Tag, Title: t.Title, Controls: string(t.Controls)}, string(reason), true
}

func (l library) Files(tag dreamcore.TemplateTag) ([]tree.File, error) {
	files := l.Library.Files(tag)
	if len(files) == 0 {
		return nil, dreamcore.Errorf(dreamcore.NotFound, "app.library", "there is no template %s", tag)
	}
	out := make([]tree.File, 0, len(files))
	for _, f := range files {
		out = append(out, tree.File{Path: f.Path, Data: f.Data})
	}
	return out, nil
}

// versions is the publisher as a job sees it: it publishes what was kept.
type versions struct{ *publish.Publisher }

func (v versions) Publish(ctx context.Context, j dreamcore.Job, files []dreamcore.VersionFile, ev dreamcore.Evidence) (dreamcore.Version, error) {
	kept, err := v.Load(ctx, files)
	if err != nil {
		return dreamcore.Version{}, err
	}
	t, err := tree.New(kept, tree.DefaultLimits())
	if err != nil {
		return dreamcore.Version{}, err
	}
	return v.Publisher.Publish(ctx, publish.Request{Job: j, Tree: t, Evidence: ev})
}
