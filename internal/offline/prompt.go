package offline

import (
	"regexp"
	"slices"
	"strings"

	"dreamcore"
	"dreamcore/internal/offline/wire"
)

// prompt is what the host asks in one turn.
type prompt struct {
	turn dreamcore.Turn
	lang dreamcore.Lang
	wish string // what the person wrote; data
	has  struct{ wish, findings bool }
	// findings is the host's list of what verification refused.
	findings string
	// rest is the prompt without what people and tools wrote, so that nothing
	// in it can pass for a line of the host's.
	rest string
}

var (
	turnLine = regexp.MustCompile(`^\s*\[dreamcore turn: (design|build|edit|repair)\]`)
	langLine = regexp.MustCompile(`(?m)^language: (en|ja|zh)\s*$`)
	section  = regexp.MustCompile(`(?s)<(wish|findings|chat)>(.*?)</(?:wish|findings|chat)>`)
	unescape = strings.NewReplacer("&lt;", "<", "&gt;", ">", "&quot;", `"`, "&#39;", "'", "&amp;", "&")
)

// parsePrompt reads a user's message; false when it is not the host's prompt of
// a turn, as are the reminders that some agents put in.
func parsePrompt(text string) (prompt, bool) {
	head := turnLine.FindStringSubmatch(text)
	if head == nil {
		return prompt{}, false
	}
	p := prompt{turn: dreamcore.Turn(head[1])}
	for _, s := range section.FindAllStringSubmatch(text, -1) {
		body := strings.TrimSpace(unescape.Replace(s[2]))
		switch {
		case s[1] == "wish" && !p.has.wish:
			p.wish, p.has.wish = body, true
		case s[1] == "findings" && !p.has.findings:
			p.findings, p.has.findings = body, true
		}
	}
	p.rest = section.ReplaceAllString(text, "")
	p.lang = dreamcore.DetectLang(p.wish)
	if l := langLine.FindStringSubmatch(p.rest); l != nil {
		p.lang = dreamcore.Lang(l[1])
	}
	return p, true
}

// exchange is one tool call with its result; ended is false for a call that was
// cut off before there was one.
type exchange struct {
	tool   string
	result string
	failed bool
	ended  bool
}

// conversation is what a request tells of the job so far.
type conversation struct {
	prompts []prompt   // of all turns, the last is the one to answer
	done    []exchange // since the last prompt
}

func parseConversation(req wire.Request) conversation {
	var c conversation
	open := map[string]int{}
	for _, it := range req.Items {
		switch it.Role {
		case wire.User:
			if p, ok := parsePrompt(it.Text); ok {
				c.prompts, c.done, open = append(c.prompts, p), nil, map[string]int{}
			}
		case wire.Caller:
			open[it.ID] = len(c.done)
			c.done = append(c.done, exchange{tool: it.Tool})
		case wire.Result:
			if i, ok := open[it.ID]; ok {
				c.done[i].result, c.done[i].failed, c.done[i].ended = it.Text, it.Failed, true
			}
		}
	}
	return c
}

// wish is the text that the game is made for: that of the last build or edit
// turn, or of the design turn before it.
func (c conversation) wish() (string, bool) {
	for _, p := range slices.Backward(c.prompts) {
		if p.has.wish {
			return p.wish, true
		}
	}
	return "", false
}

// maker is the turn that made what a repair turn repairs.
func (c conversation) maker() dreamcore.Turn {
	for _, p := range slices.Backward(c.prompts) {
		if p.turn == dreamcore.Build || p.turn == dreamcore.Edit {
			return p.turn
		}
	}
	return dreamcore.Build
}

// repairs counts the repair turns since then, this one too.
func (c conversation) repairs() int {
	n := 0
	for _, p := range slices.Backward(c.prompts) {
		if p.turn != dreamcore.Repair {
			break
		}
		n++
	}
	return n
}
