package dreamcore

// Feature is something that an operator switches on. Egress policy, proxy
// routes and toolkit entries all derive from the set of enabled features; there
// is no second place to edit.
type Feature string

// The features of this release.
const (
	AnthropicMessages Feature = "model/anthropic-messages"
	OpenAIChat        Feature = "model/openai-chat"
	OpenAIResponses   Feature = "model/openai-responses"
	ImageGeneration   Feature = "image/generate"
)

// Policy is what a sandbox may reach. The zero policy reaches nothing.
type Policy struct {
	// Routes are the proxy routes that are open, as "METHOD /path".
	Routes []string `json:"routes"`
}
