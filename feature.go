package dreamcore

// Feature is something that an operator switches on. What each one means stands
// in one declaration (internal/egress), from which the egress policy, the proxy's
// routes, the toolkit's entries and the text of the prompt derive.
type Feature string

// The features of this release.
const (
	AnthropicMessages Feature = "model/anthropic-messages"
	OpenAIChat        Feature = "model/openai-chat"
	OpenAIResponses   Feature = "model/openai-responses"
	GoogleGemini      Feature = "model/google-gemini"
	ImageGeneration   Feature = "image/generate"
	PackageMirror     Feature = "package/npm"
	AssetFetch        Feature = "asset/fetch"
)

// Policy is what a sandbox may reach. The zero policy reaches nothing.
type Policy struct {
	// Routes are the proxy routes that are open, as "METHOD /path". A part in
	// braces stands for one segment of a path, {name...} for all that follow.
	Routes []string `json:"routes"`
}
