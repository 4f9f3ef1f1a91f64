package egress

import (
	"slices"

	"dreamcore"
)

// Declaration is all that one feature means. The policy, the key proxy's routes,
// the commands and variables of a sandbox, and the line of the prompt that speaks
// of it derive from here; there is no second place.
type Declaration struct {
	Feature dreamcore.Feature
	// API is the settings' word for the protocol of a language model; "" for a
	// feature that is none.
	API string
	// Base is the path that a client of the protocol takes for its base URL.
	Base      string
	Routes    []Route
	Commands  []Command
	Variables []Variable
	// Prompt is the catalogue's key of the line that tells the agent.
	Prompt string
}

// Route is one row of a policy and of the proxy.
type Route struct {
	Method, Path string
	// Operation is the proxy's word for what answers there; "" for the bare
	// answer that somebody is there.
	Operation string
}

// String is the row as it stands in a policy.
func (r Route) String() string { return r.Method + " " + r.Path }

// Command is an entry of the toolkit: a name in PATH and the shell line behind it.
type Command struct{ Name, Script string }

// Variable is one of a sandbox's environment: the address of a route (with
// Route), or the model that draws (with Model).
type Variable struct {
	Name  string
	Route string // below the proxy's own address
	Model bool
}

// tool is a command of the toolkit's binary.
func tool(name string) Command {
	return Command{name, `exec "${0%/*}/toolkit" ` + name + ` "$@"`}
}

// npm is the image's own npm with the mirror for its registry. The grant is read
// anew at each run, and no script of a package runs. npm reads a setting that is
// bound to one address from a variable whose name no shell can set, so env does.
const npm = `PATH=${PATH#"${0%/*}:"}; export PATH
exec env "npm_config_registry=$DREAMCORE_NPM_URL" "npm_config_${DREAMCORE_NPM_URL#*:}:_authToken=$(cat "$DREAMCORE_GRANT_FILE")" ` +
	`npm_config_ignore_scripts=true npm_config_audit=false npm_config_fund=false npm_config_update_notifier=false npm "$@"`

// there is what some clients ask before anything else.
var there = Route{"HEAD", "/", ""}

// declarations are the features of this release, sorted by name.
var declarations = []Declaration{
	{
		Feature: dreamcore.AssetFetch,
		Routes:  []Route{{"GET", "/asset/{host}/{path...}", "asset.fetch"}},
		Commands: []Command{
			tool("fetch"),
		},
		Variables: []Variable{{Name: "DREAMCORE_ASSET_URL", Route: "/asset/"}},
		Prompt:    "prompt.feature_assets",
	},
	{
		Feature:   dreamcore.ImageGeneration,
		Routes:    []Route{there, {"POST", "/openai/v1/images/generations", "openai.images"}},
		Commands:  []Command{tool("image")},
		Variables: []Variable{{Name: "DREAMCORE_IMAGE_URL", Route: "/openai/v1/images/generations"}, {Name: "DREAMCORE_IMAGE_MODEL", Model: true}},
		Prompt:    "prompt.feature_images",
	},
	{
		Feature: dreamcore.AnthropicMessages, API: "anthropic-messages", Base: "/anthropic",
		Routes: []Route{
			there,
			{"POST", "/anthropic/v1/messages", "anthropic.messages"},
			{"POST", "/anthropic/v1/messages/count_tokens", "anthropic.count_tokens"},
			{"GET", "/anthropic/v1/models", "anthropic.models"},
		},
	},
	{
		Feature: dreamcore.GoogleGemini, API: "google-gemini", Base: "/gemini/v1beta",
		Routes: []Route{
			there,
			{"POST", "/gemini/v1beta/models/{model}:generateContent", "gemini.generate"},
			{"POST", "/gemini/v1beta/models/{model}:streamGenerateContent", "gemini.stream"},
			{"POST", "/gemini/v1beta/models/{model}:countTokens", "gemini.count"},
			{"GET", "/gemini/v1beta/models", "gemini.models"},
		},
	},
	{
		Feature: dreamcore.OpenAIChat, API: "openai-chat", Base: "/openai/v1",
		Routes: []Route{
			there,
			{"POST", "/openai/v1/chat/completions", "openai.chat"},
			{"GET", "/openai/v1/models", "openai.models"},
		},
	},
	{
		Feature: dreamcore.OpenAIResponses, API: "openai-responses", Base: "/openai/v1",
		Routes: []Route{
			there,
			{"POST", "/openai/v1/responses", "openai.responses"},
			{"GET", "/openai/v1/models", "openai.models"},
		},
	},
	{
		Feature: dreamcore.PackageMirror,
		Routes: []Route{
			{"GET", "/npm/{package}", "npm.metadata"},
			{"GET", "/npm/{package}/-/{file}", "npm.tarball"},
		},
		Commands:  []Command{{"npm", npm}},
		Variables: []Variable{{Name: "DREAMCORE_NPM_URL", Route: "/npm/"}},
		Prompt:    "prompt.feature_packages",
	},
}

// Declarations returns those of a set of features, in a fixed order, none twice. A
// feature that nobody declared adds nothing.
func Declarations(features []dreamcore.Feature) []Declaration {
	var out []Declaration
	for _, d := range declarations {
		if slices.Contains(features, d.Feature) {
			out = append(out, d)
		}
	}
	return out
}

// APIs lists the protocols of language models, sorted.
func APIs() []string {
	var out []string
	for _, d := range declarations {
		if d.API != "" {
			out = append(out, d.API)
		}
	}
	slices.Sort(out)
	return out
}

// Model finds the feature of a protocol.
func Model(api string) (Declaration, bool) {
	for _, d := range declarations {
		if d.API == api && api != "" {
			return d, true
		}
	}
	return Declaration{}, false
}
