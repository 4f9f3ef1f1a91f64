package recipe

import (
	"regexp"
	"slices"
	"strings"

	"dreamcore/internal/offline/lexicon"
	"dreamcore/internal/offline/wish"
)

// Entry is one line of the catalogue that a design turn shows.
type Entry struct {
	Tag      string
	Title    string
	Summary  string
	Controls string
	Words    []string
}

var entryLine = regexp.MustCompile(`(?m)^- ((?:2d|3d)/[a-z0-9-]+) \| (.+)$`)

// ParseCatalogue finds the lines of the catalogue in a prompt:
//
//   - 2d/NAME | Title | one line | controls: SCHEME | words: a, b, c
func ParseCatalogue(prompt string) []Entry {
	var all []Entry
	for _, m := range entryLine.FindAllStringSubmatch(prompt, -1) {
		e := Entry{Tag: m[1]}
		for i, field := range strings.Split(m[2], " | ") {
			field = strings.TrimSpace(field)
			if s, ok := strings.CutPrefix(field, "controls: "); ok {
				e.Controls = s
			} else if s, ok := strings.CutPrefix(field, "words: "); ok {
				for w := range strings.SplitSeq(s, ",") {
					if w = strings.TrimSpace(w); w != "" {
						e.Words = append(e.Words, w)
					}
				}
			} else if i == 0 {
				e.Title = field
			} else {
				e.Summary = field
			}
		}
		all = append(all, e)
	}
	return all
}

// How much each likeness of a wish and a template counts.
const (
	activityScore  = 4.0  // the wish does what the game is about
	commonScore    = 2.4  // the same for what is done in games of every kind
	impliedScore   = 2.0  // what one does in a place of the wish: swim in the sea
	wordScore      = 0.8  // the wish uses one of the template's own words
	placeScore     = 1.0  // it happens in a place of the template
	summaryShare   = 0.5  // what only the summary says counts half
	dimensionScore = 10.0 // the wish says 2D or 3D
	flatScore      = 0.75 // it does not: 2D runs on more machines
)

// Choose returns the entry that fits a wish best; false when there is none.
// Among equals the wish's seed decides, so that wishes that say little do not
// all get the same game.
func (c *Cook) Choose(catalogue []Entry, w wish.Wish) (Entry, bool) {
	if len(catalogue) == 0 {
		return Entry{}, false
	}
	best, bestScore := Entry{}, -1e9
	for _, e := range catalogue {
		score := c.score(e, w) + 0.2*w.Share("template "+e.Tag)
		if score > bestScore {
			best, bestScore = e, score
		}
	}
	return best, true
}

func (c *Cook) score(e Entry, w wish.Wish) float64 {
	own := strings.Join(e.Words, ", ")
	does := map[string]float64{}
	for _, h := range c.Lexicon.FindActivities(e.Title + ", " + e.Summary) {
		does[h.ID] = summaryShare
	}
	for _, h := range c.Lexicon.FindActivities(own) {
		does[h.ID] = 1
	}
	score := 0.0
	for _, id := range w.Activities {
		a := c.Lexicon.Activities[id]
		worth := activityScore
		if a.Common {
			worth = commonScore
		}
		score += worth * nearest(a, does)
	}
	for _, id := range w.Places {
		best := 0.0
		for _, implied := range c.Lexicon.Places[id].Implied {
			best = max(best, nearest(c.Lexicon.Activities[implied], does))
		}
		score += impliedScore * best
	}
	score += wordScore * float64(shared(e.Words, w.Text))
	if slices.ContainsFunc(c.Lexicon.FindPlaces(own+", "+e.Title), func(h lexicon.Hit) bool { return slices.Contains(w.Places, h.ID) }) {
		score += placeScore
	}
	dimension, _, _ := strings.Cut(e.Tag, "/")
	switch w.Dimension {
	case dimension:
		score += dimensionScore
	case "":
		if dimension == "2d" {
			score += flatScore
		}
	}
	return score
}

// nearest is how close a game comes that does these things to one that does a.
func nearest(a *lexicon.Activity, does map[string]float64) float64 {
	best := does[a.ID]
	for id, near := range a.Near {
		best = max(best, near*does[id])
	}
	return best
}

// shared counts the words of a template that a text uses; whole words where
// the script has spaces.
func shared(words []string, text string) int {
	var f lexicon.Finder
	for _, w := range words {
		f.Add(w, lexicon.Words{"": {w}})
	}
	seen := map[string]bool{}
	for _, h := range f.Find(text) {
		seen[h.ID] = true
	}
	return min(len(seen), 3)
}
