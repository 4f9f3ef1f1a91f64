package e2b

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"dreamcore"
	"dreamcore/internal/sandbox"
)

// Guard is how the network of a fresh sandbox is closed and how it is made sure
// of. It never trusts that what was asked for was done: it sets everything,
// reads it back, and tries the ways out from inside.
type Guard struct {
	// ProxyName is written into the sandbox's hosts file with the proxy's
	// address, so that no name has to be asked for; "" leaves the file alone.
	ProxyName string
	// Files are written into every sandbox with egress.
	Files []sandbox.File
	// Holds are files that the template must have, as they are here: a template
	// of another image is found before a job runs in it.
	Holds []sandbox.File
	// Sudo leaves sudo and su as the template has them. Else nobody in the
	// sandbox becomes root; commands of ours may be root without them.
	Sudo bool
	// Probes must all fail. nil means DefaultProbes.
	Probes []Probe
	// Wait is how long an answer may take; 0 means 2 s. A network that refuses
	// is known at once, one that swallows packets after this and a second.
	Wait time.Duration
}

// NetworkError is a sandbox whose network is not closed. It has been killed.
type NetworkError struct {
	Sandbox  dreamcore.SandboxID
	Answered []string // what answered from inside, or what was read back wrong
}

func (e *NetworkError) Error() string {
	return fmt.Sprintf("the network of sandbox %s is open: %s", e.Sandbox, strings.Join(e.Answered, "; "))
}

// check closes the network of a fresh sandbox and kills it unless that is sure.
func (p *Provider) check(ctx context.Context, s *box, egress bool) error {
	if p.cfg.Guard == nil {
		return nil
	}
	err := p.closeNetwork(ctx, s, egress)
	if err == nil {
		err = p.probe(ctx, s, egress)
	}
	if err == nil {
		err = p.holds(ctx, s)
	}
	if err == nil && egress && len(p.cfg.Guard.Files) > 0 {
		err = s.WriteFiles(ctx, p.cfg.Guard.Files)
	}
	if err == nil {
		p.log.Info("the network of a sandbox is closed", "sandbox_id", s.id, "egress", egress, "decision", "go on")
		return nil
	}
	p.log.Error("a fresh sandbox is not as it must be", "sandbox_id", s.id, "decision", "kill", "reason", clip(err.Error()))
	kctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
	defer cancel()
	return errors.Join(err, p.Kill(kctx, s.id))
}

// holds compares the files that the template must have.
func (p *Provider) holds(ctx context.Context, s *box) error {
	for _, f := range p.cfg.Guard.Holds {
		got, err := s.ReadFile(ctx, f.Path, int64(len(f.Data)))
		if code := dreamcore.CodeOf(err); code != "" && code != dreamcore.NotFound && code != dreamcore.Refused {
			return fmt.Errorf("look at the template: %w", err)
		}
		if err != nil || !bytes.Equal(got, f.Data) {
			return fail(p.cfg.Lang, dreamcore.Conflict, "sandbox.template", "template", "template", clip(p.cfg.Template)).Because(err)
		}
	}
	return nil
}

// Inspect does once more what Create does with a fresh sandbox: it sets the
// network, reads it back and probes it, and kills the sandbox if it is open.
func (p *Provider) Inspect(ctx context.Context, id dreamcore.SandboxID, egress bool) error {
	sb, err := p.Connect(ctx, id)
	if err != nil {
		return err
	}
	return p.check(ctx, sb.(*box), egress)
}

type (
	networkUpdate struct {
		AllowInternet bool     `json:"allow_internet_access"`
		AllowOut      []string `json:"allowOut"`
		DenyOut       []string `json:"denyOut"`
	}
	detailBody struct {
		SandboxID     string    `json:"sandboxID"`
		StartedAt     time.Time `json:"startedAt"`
		AllowInternet *bool     `json:"allowInternetAccess"`
		Network       *struct {
			AllowOut           []string                   `json:"allowOut"`
			DenyOut            []string                   `json:"denyOut"`
			AllowPublicTraffic *bool                      `json:"allowPublicTraffic"`
			EgressProxy        json.RawMessage            `json:"egressProxy"`
			Rules              map[string]json.RawMessage `json:"rules"`
		} `json:"network"`
	}
)

// closeNetwork says everything once more by the update, which replaces what was
// there, and reads back what the engine made of it.
func (p *Provider) closeNetwork(ctx context.Context, s *box, egress bool) error {
	want := p.allowed(egress)
	if want == nil {
		want = []string{} // said, not left out
	}
	_, err := p.call(ctx, request{method: http.MethodPut, path: pathOf(s.id, "network"), in: networkUpdate{AllowOut: want, DenyOut: []string{allNetworks}}})
	if err != nil {
		return fmt.Errorf("close the network: %w", p.lostWhenMissing(err, s.id))
	}
	var got detailBody
	if _, err := p.call(ctx, request{method: http.MethodGet, path: pathOf(s.id, ""), out: &got}); err != nil {
		return fmt.Errorf("read the network back: %w", p.lostWhenMissing(err, s.id))
	}
	if got.SandboxID != string(s.id) {
		return fmt.Errorf("read the network back: %w", fail(p.cfg.Lang, dreamcore.Unavailable, "sandbox.engine", "nonsense"))
	}
	s.started = got.StartedAt
	if got.Network == nil {
		p.log.Info("the engine does not tell a sandbox's network", "sandbox_id", s.id, "decision", "go on", "reason", "the_probe_decides")
		return nil
	}
	var wrong []string
	n := got.Network
	if !slices.Equal(sorted(n.AllowOut), sorted(want)) {
		wrong = append(wrong, fmt.Sprintf("allowOut is %.200q", n.AllowOut))
	}
	if !slices.Contains(n.DenyOut, allNetworks) {
		wrong = append(wrong, fmt.Sprintf("denyOut is %.200q", n.DenyOut))
	}
	if n.AllowPublicTraffic != nil && *n.AllowPublicTraffic {
		wrong = append(wrong, "allowPublicTraffic is true")
	}
	if len(n.Rules) > 0 {
		wrong = append(wrong, "there are rules")
	}
	if proxy := string(n.EgressProxy); proxy != "" && proxy != "null" {
		wrong = append(wrong, "there is an egressProxy")
	}
	if got.AllowInternet != nil && *got.AllowInternet {
		wrong = append(wrong, "allowInternetAccess is true")
	}
	if len(wrong) > 0 {
		return p.open(s.id, wrong)
	}
	return nil
}

func sorted(s []string) []string {
	s = slices.Clone(s)
	slices.Sort(s)
	return s
}

// open is the error of a network that is not closed.
func (p *Provider) open(id dreamcore.SandboxID, answered []string) error {
	e := &NetworkError{Sandbox: id, Answered: answered}
	return fail(p.cfg.Lang, dreamcore.Refused, "sandbox.network", "network_open", "what", strings.Join(answered, ", ")).Because(e)
}

// probe tries the ways out from inside the sandbox.
func (p *Provider) probe(ctx context.Context, s *box, egress bool) error {
	g := p.cfg.Guard
	probes := g.Probes
	if probes == nil {
		probes = DefaultProbes()
	}
	wait := g.Wait
	if wait == 0 {
		wait = 2 * time.Second
	}
	var hosts string
	if egress && g.ProxyName != "" {
		address, err := netip.ParsePrefix(p.cfg.Proxy)
		if err != nil || !hostName.MatchString(g.ProxyName) {
			return dreamcore.Errorf(dreamcore.Invalid, "sandbox.network", "the proxy %q %q is no address and name", clip(p.cfg.Proxy), clip(g.ProxyName))
		}
		hosts = address.Addr().String() + " " + g.ProxyName
	}
	script, err := probeScript(probes, hosts, g.Sudo, wait)
	if err != nil {
		return err
	}
	begun := time.Now()
	res, err := sandbox.Run(ctx, s, sandbox.Command{
		Args: []string{"bash", "-c", script}, User: sandbox.Root, Dir: "/", Timeout: wait + 30*time.Second,
	}, 16<<10)
	if err == nil && (res.Code != 0 || !strings.HasSuffix(string(res.Stdout), probeEnd)) {
		err = fmt.Errorf("the probe ended with %d: %q", res.Code, clip(string(res.Stderr)))
	}
	if err != nil {
		// Not tried is not closed.
		return fail(p.cfg.Lang, dreamcore.Unavailable, "sandbox.network", "network_unsure").Because(err)
	}
	var answered []string
	for i, pr := range probes {
		switch {
		case strings.Contains(string(res.Stdout), fmt.Sprintf("answer %d\n", i)):
			p.log.Warn("probed a sandbox's network", "sandbox_id", s.id, "target", pr.String(), "decision", "open", "reason", "answered")
			answered = append(answered, pr.String())
		case strings.Contains(string(res.Stdout), fmt.Sprintf("silent %d\n", i)) && pr.Net == "tcp":
			// A firewall that takes the connection in the other's place looks like
			// this; whoever speaks the protocol that is spoken to it answers.
			p.log.Warn("probed a sandbox's network", "sandbox_id", s.id, "target", pr.String(), "decision", "closed", "reason", "taken_but_not_answered")
		default:
			p.log.Debug("probed a sandbox's network", "sandbox_id", s.id, "target", pr.String(), "decision", "closed", "reason", "no_answer")
		}
	}
	p.log.Info("probed a sandbox's network", "sandbox_id", s.id, "answered", len(answered), "dur_ms", time.Since(begun).Milliseconds())
	if len(answered) > 0 {
		return p.open(s.id, answered)
	}
	return nil
}
