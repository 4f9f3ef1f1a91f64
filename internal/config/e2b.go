package config

import (
	"net"
	"net/netip"
	"net/url"
	"os"
	"strconv"
	"time"

	"dreamcore"
	"dreamcore/internal/text"
)

// The engines that sandboxes can run on.
const (
	Embedded = "embedded" // gVisor on this machine
	Remote   = "e2b"      // E2B's cloud, or a self-hosted one
)

// E2B is the remote engine. Its key is in the environment, E2B_API_KEY, and
// nowhere else.
type E2B struct {
	// Domain is that of a self-hosted E2B; "" is E2B's own cloud.
	Domain string `json:"domain"`
	// APIURL is the control plane's where it is not api.DOMAIN.
	APIURL string `json:"api_url"`
	// Template is the id that publishing our template printed.
	Template string `json:"template"`
	// Plan is what the account may do: "free" or "paid".
	Plan string `json:"plan"`
	// ProxyAddress is the key proxy as a sandbox reaches it: the one IP address
	// and port that is open to it.
	ProxyAddress string `json:"proxy_address"`
	// ProxyListen is where this machine listens for it; "" means all addresses,
	// at the port of ProxyAddress.
	ProxyListen string `json:"proxy_listen"`
}

// Proxy is ProxyAddress, which was checked.
func (e E2B) Proxy() netip.AddrPort {
	a, _ := netip.ParseAddrPort(e.ProxyAddress) // the zero value when it was not
	return a
}

// Where names the engine for people: the control plane's address.
func (e E2B) Where() string {
	switch {
	case e.APIURL != "":
		return e.APIURL
	case e.Domain != "":
		return "https://api." + e.Domain
	}
	return "E2B"
}

const (
	// jobSlack is what a sandbox lives longer than its job may take.
	jobSlack = 5 * time.Minute
	// boxesPerJob is the agent's and the verifier's.
	boxesPerJob = 2
)

// plans are how long a sandbox may live and how many at once.
var plans = map[string]struct {
	life  time.Duration
	boxes int
}{"free": {time.Hour, 20}, "paid": {24 * time.Hour, 100}}

// RemoteKey is the key of the remote engine, from the environment.
func (c *Config) RemoteKey() (dreamcore.Secret, error) {
	key := os.Getenv("E2B_API_KEY")
	if key == "" {
		return dreamcore.Secret{}, c.wrong(dreamcore.Missing, "e2b_key")
	}
	return dreamcore.NewSecret(key), nil
}

// wrong is an error in the operator's language.
func (c *Config) wrong(code dreamcore.Code, key string, args ...string) error {
	return text.Error(c.Lang, code, "config", "config."+key, args...)
}

// completeEngine checks that one engine is chosen, and wholly.
func (c *Config) completeEngine() error {
	switch c.Engine {
	case "", Embedded:
		c.Engine = Embedded
		if c.E2B != (E2B{}) {
			return c.wrong(dreamcore.Invalid, "e2b_unused")
		}
		return nil
	case Remote:
	default:
		return c.wrong(dreamcore.Invalid, "engine", "engine", strconv.Quote(c.Engine))
	}
	e := &c.E2B
	if e.Template == "" {
		return c.wrong(dreamcore.Invalid, "e2b_template")
	}
	if e.Plan == "" {
		e.Plan = "free"
	}
	plan, ok := plans[e.Plan]
	if !ok {
		return c.wrong(dreamcore.Invalid, "e2b_plan", "plan", strconv.Quote(e.Plan))
	}
	a, err := netip.ParseAddrPort(e.ProxyAddress)
	if err != nil || !a.Addr().Is4() || a.Addr().IsUnspecified() || a.Addr().IsMulticast() || a.Port() == 0 {
		return c.wrong(dreamcore.Invalid, "e2b_proxy", "address", strconv.Quote(e.ProxyAddress))
	}
	if e.ProxyListen == "" {
		e.ProxyListen = net.JoinHostPort("0.0.0.0", strconv.Itoa(int(a.Port())))
	}
	if _, _, err := net.SplitHostPort(e.ProxyListen); err != nil {
		return c.wrong(dreamcore.Invalid, "e2b_listen", "address", strconv.Quote(e.ProxyListen))
	}
	if e.APIURL != "" {
		u, err := url.Parse(e.APIURL)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.Path != "" && u.Path != "/" {
			return c.wrong(dreamcore.Invalid, "e2b_api", "url", strconv.Quote(e.APIURL))
		}
	}
	if most := plan.life - jobSlack; c.Jobs.Job() > most {
		return c.wrong(dreamcore.Invalid, "e2b_life", "plan", e.Plan, "minutes", strconv.Itoa(int(most.Minutes())))
	}
	// Else agents hold all places and wait for verifiers that never come.
	if most := plan.boxes / boxesPerJob; c.Jobs.Concurrent > most {
		return c.wrong(dreamcore.Invalid, "e2b_concurrent", "plan", e.Plan, "jobs", strconv.Itoa(most))
	}
	return nil
}
