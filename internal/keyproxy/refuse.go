package keyproxy

// Reason is the code of a decision; agents, operators and tests read it.
type Reason string

// The reasons, in the order of the checks.
const (
	BadTarget       Reason = "bad_target"
	BadHost         Reason = "bad_host"
	BadUpgrade      Reason = "bad_upgrade"
	NoRoute         Reason = "no_route"
	BadMethod       Reason = "bad_method"
	BadQuery        Reason = "bad_query"
	ForeignKey      Reason = "foreign_credential"
	TwoCredentials  Reason = "two_credentials"
	NoToken         Reason = "no_token"
	BadToken        Reason = "bad_token"
	TokenExpired    Reason = "token_expired"
	TokenNotYet     Reason = "token_not_yet"
	ChannelMismatch Reason = "channel_mismatch"
	JobUnknown      Reason = "job_unknown"
	JobEnded        Reason = "job_ended"
	AttemptMismatch Reason = "attempt_mismatch"
	FeatureOff      Reason = "feature_off"
	AuditDown       Reason = "audit_unavailable"
	TooManyAtOnce   Reason = "too_many_at_once"
	TooFast         Reason = "too_fast"
	Flood           Reason = "flood"
	BadEncoding     Reason = "bad_encoding"
	BadType         Reason = "bad_content_type"
	BadBody         Reason = "bad_body"
	TooLarge        Reason = "too_large"
	BadJSON         Reason = "bad_json"
	BadField        Reason = "field_not_allowed"
	ModelRefused    Reason = "model_not_allowed"
	NoPrice         Reason = "no_price"
	PackageRefused  Reason = "package_not_allowed"
	NoVersion       Reason = "no_such_version"
	BadIntegrity    Reason = "bad_integrity"
	HostRefused     Reason = "host_not_allowed"
	BadAsset        Reason = "asset_not_allowed"
	NotThere        Reason = "not_found_upstream"
	BudgetSpent     Reason = "budget_exhausted"
	LedgerDown      Reason = "ledger_unavailable"
	GuardDenied     Reason = "guard_denied"
	UpstreamDown    Reason = "upstream_unreachable"
	UpstreamSilent  Reason = "upstream_silent"
	UpstreamBroken  Reason = "upstream_broken"
	UpstreamMoved   Reason = "upstream_redirect"
	UpstreamKey     Reason = "upstream_refused_key"
	UpstreamError   Reason = "upstream_error"
	ClientGone      Reason = "client_gone"
	Killed          Reason = "killed"
	Panicked        Reason = "internal"
)

// refusal is a row of the one table of refusals.
type refusal struct {
	anthropic, openai, other int
	retryAfter               string
	message                  string
}

func all(status int, message string) refusal { return refusal{status, status, status, "", message} }

// denied follows the clients' habits: 401 makes one retry for minutes, another
// retries 403 as well but stops at 400.
func denied(message string) refusal { return refusal{403, 400, 403, "", message} }

func later(status int, seconds, message string) refusal {
	return refusal{status, status, status, seconds, message}
}

const askHost = "This cannot be changed from inside the sandbox: stop and say so in your answer."

var refusals = map[Reason]refusal{
	BadTarget:      all(400, "The request target is not a plain path. Use the exact paths of the API, without encoded or unusual characters."),
	BadHost:        all(421, "This address is not served here. Send requests to the configured base URL."),
	BadUpgrade:     all(400, "Protocol upgrades are not offered. Use plain HTTP requests with server-sent events."),
	NoRoute:        all(404, "There is no such route. Only the model and image operations of the configured base URL exist."),
	BadMethod:      all(405, "This route does not take that method."),
	BadQuery:       all(400, "Query parameters are not accepted here, but for beta=true on the Anthropic routes and alt=sse on the route that streams Gemini."),
	ForeignKey:     all(400, "A credential other than the job's own token was sent. Remove it: use the token that the environment was configured with, and no other key."),
	TwoCredentials: all(400, "Two credentials were sent. Send the job's token once."),
	BadEncoding:    all(415, "Encoded bodies are not accepted. Send the JSON uncompressed."),
	BadType:        all(415, "Only application/json is accepted here."),
	BadBody:        all(400, "The request body could not be read."),
	TooLarge:       all(413, "The request is too large. Send less history or smaller pictures."),
	BadJSON:        all(400, "The body is not acceptable JSON"),
	BadField:       all(400, "The request is not allowed as it stands"),

	NoToken:         denied("No token was sent. Use the token that the environment was configured with. " + askHost),
	BadToken:        denied("The token is not one of this installation. " + askHost),
	TokenExpired:    denied("The token has expired. Read it again from where the environment keeps it."),
	TokenNotYet:     denied("The token is not valid yet. Try again in a moment."),
	ChannelMismatch: denied("The token belongs to another sandbox. " + askHost),
	JobUnknown:      denied("The job of this token is not open. " + askHost),
	JobEnded:        denied("The job has ended. " + askHost),
	AttemptMismatch: denied("The token belongs to another attempt of this job. " + askHost),
	FeatureOff:      denied("This feature is not switched on for the job. Do without it."),
	ModelRefused:    denied("This model is not offered. Ask the models route which ones are."),
	NoPrice:         denied("The operator has set no price for this model, so it cannot be used. Use another."),
	PackageRefused:  denied("This package is not on the operator's list. Do without it, or write the code yourself. " + askHost),
	NoVersion:       all(404, "The mirror has no such version of this package. Ask npm for the versions there are."),
	BadIntegrity:    all(502, "The package is not what its integrity says, so it is not handed on. "+askHost),
	HostRefused:     denied("Files are fetched from the operator's list of hosts only, and this is none of them. " + askHost),
	BadAsset:        all(502, "What came is no picture, sound, font or model of an allowed type."),
	NotThere:        all(404, "There is no such file."),
	BudgetSpent:     denied("The budget of this job is spent. Finish with what there is."),

	TooManyAtOnce: later(429, "2", "Too many requests at once. Wait for those that run, then try again."),
	TooFast:       later(429, "5", "Too many requests in a short time. Wait, then try again."),
	Flood:         later(429, "5", "Far too many requests in a short time. Wait, then try again on a new connection."),
	AuditDown:     later(503, "10", "The audit log cannot be written, so nothing may be spent. Try again later."),
	LedgerDown:    later(503, "10", "The ledger cannot be written, so nothing may be spent. Try again later."),

	GuardDenied:    all(502, "The model's address is not one that may be reached. "+askHost),
	UpstreamDown:   later(502, "5", "The model's server cannot be reached. Try again."),
	UpstreamSilent: later(504, "5", "The model's server did not answer in time. Try again."),
	UpstreamBroken: all(502, "The model's server gave an answer that cannot be passed on."),
	UpstreamMoved:  all(502, "The model's server redirects, which is not followed. "+askHost),
	UpstreamKey:    all(502, "The model's server does not accept the operator's key. "+askHost),
	Killed:         denied("The job has ended. " + askHost),
	ClientGone:     all(499, "The client went away."),
	Panicked:       all(500, "The proxy failed. Try again."),
}

// status picks the column by the path's family.
func (r refusal) status(family string) int {
	switch family {
	case "anthropic":
		return r.anthropic
	case "openai":
		return r.openai
	}
	return r.other
}
