package workspace

import (
	"strings"

	"dreamcore"
	"dreamcore/internal/egress"
	"dreamcore/internal/text"
)

// A prompt begins with two lines that a program can read (the turn and the
// language); what comes from people or from the box stands between tags, is
// escaped so that it cannot close them, and is said to be data.

func header(turn dreamcore.Turn, lang dreamcore.Lang) string {
	return "[dreamcore turn: " + string(turn) + "]\nlanguage: " + string(lang) + "\n\n"
}

// escape keeps data from looking like one of our tags.
func escape(s string) string {
	return strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;").Replace(s)
}

func tagged(name, data string) string {
	return "<" + name + ">\n" + escape(data) + "\n</" + name + ">\n"
}

// tools lists the commands: the judgements, and a line for each feature that has one.
func tools(lang dreamcore.Lang, features []dreamcore.Feature) string {
	lines := []string{text.T(lang, "prompt.tools")}
	for _, d := range egress.Declarations(features) {
		if d.Prompt != "" {
			lines = append(lines, text.T(lang, d.Prompt))
		}
	}
	return strings.Join(append(lines, text.T(lang, "prompt.end")), "\n")
}

// DesignPrompt asks for project/spec.md. catalogue is the list of templates,
// one line each, from our own library.
func DesignPrompt(lang dreamcore.Lang, wish, catalogue string) string {
	return header(dreamcore.Design, lang) +
		text.T(lang, "prompt.design") + "\n\n" + tagged("wish", wish) +
		"\n" + text.T(lang, "prompt.design_catalogue") + "\n" + catalogue
}

// BuildPrompt asks for the game. tag is what was delivered, "" for nothing; features
// are those whose commands the agent has.
func BuildPrompt(lang dreamcore.Lang, wish string, tag dreamcore.TemplateTag, controls string, features ...dreamcore.Feature) string {
	how := text.T(lang, "prompt.build_from_nothing", "controls", controls)
	if tag != "" {
		how = text.T(lang, "prompt.build_from_template", "tag", string(tag), "controls", controls)
	}
	return header(dreamcore.Build, lang) + how + "\n\n" + tagged("wish", wish) + "\n" + tools(lang, features)
}

// EditPrompt asks for a change of the game that is in project/.
func EditPrompt(lang dreamcore.Lang, wish, controls string, chat []dreamcore.Message, features ...dreamcore.Feature) string {
	var lines []string
	for _, m := range chat {
		lines = append(lines, m.Role+": "+m.Text)
	}
	return header(dreamcore.Edit, lang) + text.T(lang, "prompt.edit", "controls", controls) + "\n\n" +
		tagged("chat", strings.Join(lines, "\n")) + tagged("wish", wish) + "\n" + tools(lang, features)
}

// RepairPrompt hands the findings of verification to the agent.
func RepairPrompt(lang dreamcore.Lang, findings []dreamcore.Finding, features ...dreamcore.Feature) string {
	const most = 30 // more would bury the important ones, which come first
	var lines []string
	for i, f := range findings {
		if i == most {
			lines = append(lines, text.T(lang, "prompt.repair_more"))
			break
		}
		lines = append(lines, f.String())
	}
	return header(dreamcore.Repair, lang) + text.T(lang, "prompt.repair") + "\n\n" +
		tagged("findings", strings.Join(lines, "\n")) + "\n" + tools(lang, features)
}
