// Package egress says what a sandbox may reach. PolicyOf derives it from the
// enabled features and from nothing else; Guard keeps the key proxy's own dials
// to the pinned upstreams on the public internet.
package egress

import (
	"maps"
	"slices"

	"dreamcore"
)

// declared is the one declaration per feature. The key proxy's routes, a job's
// policy and an engine's rules all derive from it; there is no second place.
var declared = map[dreamcore.Feature][]string{
	dreamcore.AnthropicMessages: {
		"HEAD /",
		"POST /anthropic/v1/messages",
		"POST /anthropic/v1/messages/count_tokens",
		"GET /anthropic/v1/models",
	},
	dreamcore.OpenAIChat: {
		"HEAD /",
		"POST /openai/v1/chat/completions",
		"GET /openai/v1/models",
	},
	dreamcore.OpenAIResponses: {
		"HEAD /",
		"POST /openai/v1/responses",
		"GET /openai/v1/models",
	},
	dreamcore.ImageGeneration: {
		"HEAD /",
		"POST /openai/v1/images/generations",
	},
}

// Features lists every feature that opens a route, sorted.
func Features() []dreamcore.Feature { return slices.Sorted(maps.Keys(declared)) }

// PolicyOf returns the policy of a set of features: exactly the rows of each,
// sorted, none twice. A feature that nobody declared adds nothing.
func PolicyOf(features []dreamcore.Feature) dreamcore.Policy {
	open := map[string]bool{}
	for _, f := range features {
		for _, r := range declared[f] {
			open[r] = true
		}
	}
	return dreamcore.Policy{Routes: slices.Sorted(maps.Keys(open))}
}

// Opens returns the features that open a route, sorted.
func Opens(route string) []dreamcore.Feature {
	var fs []dreamcore.Feature
	for f, rs := range declared {
		if slices.Contains(rs, route) {
			fs = append(fs, f)
		}
	}
	slices.Sort(fs)
	return fs
}
