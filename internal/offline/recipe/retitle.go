package recipe

import (
	"maps"
	"strings"

	"dreamcore"
)

// titled holds the renames that are for the title in one language alone: there
// a foe's or a prize's name surely names it.
func (e *editor) titled(lang dreamcore.Lang) *Plan {
	if e.byTitle == nil {
		e.byTitle = map[dreamcore.Lang]*Plan{}
	}
	if e.byTitle[lang] == nil {
		e.byTitle[lang] = &Plan{}
	}
	return e.byTitle[lang]
}

// retitle takes foes and prizes that are no more out of the titles.
func (e *editor) retitle() {
	for _, pointer := range e.m.Change.Titles {
		p := e.byTitle[dreamcore.Lang(pointer[strings.LastIndexByte(pointer, '/')+1:])]
		title, changed := e.game.changes[pointer].(string)
		if p == nil || e.w.Title != "" || !changed && !e.game.get(pointer, &title) {
			continue
		}
		if now := p.Reword(title); now != title {
			e.plan.replaceTitle(title, now)
			e.game.set(pointer, now)
		}
	}
}

// titles gives the game the title that was asked for, word for word.
func (e *editor) titles() {
	if e.w.Title == "" {
		return
	}
	for _, pointer := range e.m.Change.Titles {
		var old string
		if e.game.get(pointer, &old) {
			e.plan.replaceTitle(old, e.w.Title)
		}
		e.game.set(pointer, e.w.Title)
	}
	e.plan.Title = dreamcore.Localized{
		dreamcore.English: e.w.Title, dreamcore.Japanese: e.w.Title, dreamcore.Chinese: e.w.Title,
	}
}

// titleOf is the title as it stands in the game now.
func titleOf(doc *document, m Manifest, was dreamcore.Localized) dreamcore.Localized {
	title := maps.Clone(was)
	for _, pointer := range m.Change.Titles {
		lang := dreamcore.Lang(pointer[strings.LastIndexByte(pointer, '/')+1:])
		if now, ok := doc.changes[pointer].(string); ok && title != nil {
			title[lang] = now
		}
	}
	return title
}
