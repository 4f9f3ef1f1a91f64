package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"dreamcore"
	"dreamcore/internal/text"
)

const (
	streamBatch = 100
	// heartbeat keeps proxies from closing a silent stream and finds readers
	// that are gone; it is also how often the place in the queue is looked at.
	heartbeat = 10 * time.Second
	// writeTime is how long a reader may take for one batch. Nothing is buffered
	// for a slow one: it is cut off, connects again and goes on where it was.
	writeTime = 20 * time.Second
)

// EventJSON is the data of one event of a stream. Line is the event in the
// reader's language, for people; Text is raw and untrusted.
type EventJSON struct {
	Seq  int64               `json:"seq"`
	Kind dreamcore.EventKind `json:"kind"`
	Turn dreamcore.Turn      `json:"turn,omitempty"`
	Key  string              `json:"key,omitempty"`
	Args map[string]string   `json:"args,omitempty"`
	Line string              `json:"line,omitempty"`
	Text string              `json:"text,omitempty"`
	Time time.Time           `json:"time"`
}

// QueueJSON is the data of a "queue" event: how many are before this job.
type QueueJSON struct {
	Ahead int    `json:"ahead"`
	Line  string `json:"line"`
}

// apiEvents streams what happens in a job as server-sent events. Each has the
// id JOB-SEQ, so that a browser that connects again goes on behind the last it
// saw; "queue" tells the place in the queue, and "end" is the last one, with
// the job as data. ?after=SEQ starts behind SEQ.
func (a *App) apiEvents(w http.ResponseWriter, r *http.Request) {
	j, err := a.ownJob(r)
	if err != nil {
		a.problem(w, r, err)
		return
	}
	after, ok := resumeAfter(r, j.ID)
	if !ok {
		a.problem(w, r, dreamcore.Errorf(dreamcore.NotFound, "web", "no such event of this job"))
		return
	}
	leave, ok := a.streams.take(a.config.ClientAddress(r))
	if !ok {
		a.refuse(r, "streams")
		w.Header().Set("Retry-After", "10")
		a.status(w, r, http.StatusTooManyRequests, "web.too_often")
		return
	}
	defer leave()
	h := w.Header()
	h.Set("Content-Type", "text/event-stream; charset=utf-8")
	h.Set("X-Accel-Buffering", "no")
	s := &stream{app: a, w: w, out: http.NewResponseController(w), lang: langOf(r), job: j.ID, after: after, ahead: -1}
	if err := s.run(r); err != nil && r.Context().Err() == nil {
		a.log.Info("event stream ended", "job_id", string(j.ID), "reason", err.Error())
	}
	// The connection may serve another request, which has its own time.
	if err := s.out.SetWriteDeadline(time.Time{}); err != nil {
		a.log.Info("event stream keeps its deadline", "job_id", string(j.ID), "reason", err.Error())
	}
}

// resumeAfter finds where to begin; ok is false for an id that is not of this job.
func resumeAfter(r *http.Request, job dreamcore.JobID) (seq int64, ok bool) {
	at := r.URL.Query().Get("after")
	if last := r.Header.Get("Last-Event-ID"); last != "" {
		of, n, _ := strings.Cut(last, "-")
		if dreamcore.JobID(of) != job {
			return 0, false
		}
		at = n
	} else if at == "" {
		return 0, true
	}
	seq, err := strconv.ParseInt(at, 10, 64)
	return seq, err == nil && seq >= 0
}

type stream struct {
	app   *App
	w     http.ResponseWriter
	out   *http.ResponseController
	lang  dreamcore.Lang
	job   dreamcore.JobID
	after int64
	ahead int // as last told; -1 never
}

// run writes until the job has ended, the reader is gone or the app stops.
func (s *stream) run(r *http.Request) error {
	ctx := r.Context()
	changed, stop := s.app.store.Watch(s.job)
	defer stop()
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	if err := s.send(": hello\nretry: 2000\n\n"); err != nil {
		return err
	}
	for {
		// The job is read before its events: when it has ended, then all that it
		// had to say before is among them.
		j, err := s.app.store.Job(ctx, s.job)
		if err != nil {
			return err
		}
		if err := s.events(r); err != nil {
			return err
		}
		if j.State.Ended() {
			return s.end(r, j)
		}
		if j.State == dreamcore.Queued {
			if err := s.queue(r); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.app.stopped:
			return nil
		case _, open := <-changed:
			if !open {
				return nil // the store closed: the service is going down
			}
		case <-tick.C:
			if err := s.send(": still here\n\n"); err != nil {
				return err
			}
		}
	}
}

// events writes all that is new, batch by batch.
func (s *stream) events(r *http.Request) error {
	for {
		list, err := s.app.store.Events(r.Context(), s.job, s.after, streamBatch)
		if err != nil {
			return err
		}
		var b strings.Builder
		for _, e := range list {
			out := EventJSON{Seq: e.Seq, Kind: e.Kind, Turn: e.Turn, Key: e.Key, Args: e.Args, Text: e.Text, Time: e.Time}
			if e.Key != "" {
				out.Line = text.Map(s.lang, e.Key, e.Args)
			}
			data, err := json.Marshal(out)
			if err != nil {
				return err
			}
			fmt.Fprintf(&b, "id: %s-%d\nevent: %s\ndata: %s\n\n", s.job, e.Seq, eventName(e.Kind), data)
			s.after = e.Seq
		}
		if b.Len() > 0 {
			if err := s.send(b.String()); err != nil {
				return err
			}
		}
		if len(list) < streamBatch {
			return nil
		}
	}
}

// eventName keeps a kind that we do not know from becoming part of the framing.
func eventName(k dreamcore.EventKind) dreamcore.EventKind {
	switch k {
	case dreamcore.EventState, dreamcore.EventStep, dreamcore.EventSay, dreamcore.EventTool, dreamcore.EventFind:
		return k
	}
	return "other"
}

func (s *stream) queue(r *http.Request) error {
	ahead, err := s.app.store.Ahead(r.Context(), s.job)
	if err != nil || ahead == s.ahead {
		return err
	}
	s.ahead = ahead
	return s.sendJSON("queue", QueueJSON{ahead, queueLine(s.lang, ahead)})
}

func queueLine(lang dreamcore.Lang, ahead int) string {
	if ahead == 0 {
		return text.T(lang, "web.queue_next")
	}
	return text.T(lang, "web.queue_ahead", "ahead", itoa(ahead))
}

func (s *stream) end(r *http.Request, j dreamcore.Job) error {
	out, err := s.app.jobJSON(r, j)
	if err != nil {
		return err
	}
	return s.sendJSON("end", out)
}

func (s *stream) sendJSON(event string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return s.send("event: " + event + "\ndata: " + string(data) + "\n\n")
}

// send writes at once, or fails when the reader does not take it in time.
func (s *stream) send(text string) error {
	if err := s.out.SetWriteDeadline(time.Now().Add(writeTime)); err != nil {
		return fmt.Errorf("set deadline: %w", err)
	}
	if _, err := s.w.Write([]byte(text)); err != nil {
		return err
	}
	return s.out.Flush()
}
