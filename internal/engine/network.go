package engine

import (
	"context"
	"errors"
	"fmt"
	"net/http"
)

// wayOut is a context that ends when the box may not send anything out any
// more; it has ended where it never might.
func (b *box) wayOut() context.Context {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.out
}

// letOut opens or shuts the box's way out. Shutting cuts what is open.
func (b *box) letOut(open bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.order.egress = open
	if b.out != nil && open == (b.out.Err() == nil) {
		return
	}
	if b.shut != nil {
		b.shut()
	}
	b.out, b.shut = context.WithCancel(b.ctx)
	if !open {
		b.shut()
	}
}

// serveNetwork replaces what the box may reach.
func (e *Engine) serveNetwork(w http.ResponseWriter, r *http.Request, b *box) {
	var in networkBody
	if !decode(w, r, &in) {
		return
	}
	egress, err := in.egress()
	if err == nil && in.AllowPublicTraffic != nil {
		err = errors.New("allowPublicTraffic is decided when a sandbox is created")
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	c, _ := b.line()
	o := b.ordered()
	was := o.egress
	o.egress = egress
	if !egress {
		b.letOut(false) // first here, where the box has no say
	}
	if err := c.tell(r.Context(), c.init(o)); err != nil {
		e.log.Error("cannot change the way out of a sandbox", "sandbox_id", b.id, "reason", err.Error())
		refuse(w, http.StatusInternalServerError, "the sandbox did not take the change; its way out is shut or as it was")
		return
	}
	b.letOut(egress)
	e.note(b)
	e.log.Info("replaced the network of a sandbox", "sandbox_id", b.id, "was", was, "egress", egress)
	w.WriteHeader(http.StatusNoContent)
}

// egress reports whether the box is to have its way out.
func (n networkBody) egress() (bool, error) {
	if isSet(n.EgressProxy) || isSet(n.Rules) {
		return false, errors.New("this engine's sandboxes have no network: egressProxy and rules mean nothing here")
	}
	egress := false
	for _, a := range n.AllowOut {
		if a != RelayCIDR {
			return false, fmt.Errorf("this engine's sandboxes have no network: %q cannot be allowed, only %s, the one way out", clip(a, 64), RelayCIDR)
		}
		egress = true
	}
	return egress, nil
}

// ordered is b's order as it is now.
func (b *box) ordered() order {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.order
}
