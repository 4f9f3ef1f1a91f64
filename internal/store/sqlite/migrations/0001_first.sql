-- Times are microseconds since 1970 (UTC), 0 for none. A column "doc" holds as
-- JSON what is only ever read as a whole.
CREATE TABLE games (
  id      TEXT PRIMARY KEY,
  creator TEXT NOT NULL,
  title   TEXT NOT NULL,
  wish    TEXT NOT NULL,
  lang    TEXT NOT NULL,
  current TEXT NOT NULL,
  created INTEGER NOT NULL,
  updated INTEGER NOT NULL,
  removed INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE INDEX games_by_creator ON games (creator, updated DESC);
CREATE INDEX games_to_show ON games (updated DESC, id DESC) WHERE current <> '' AND removed = 0;

CREATE TABLE messages (
  seq     INTEGER PRIMARY KEY AUTOINCREMENT,
  game    TEXT NOT NULL REFERENCES games (id),
  job     TEXT NOT NULL,
  role    TEXT NOT NULL,
  text    TEXT NOT NULL,
  digest  TEXT NOT NULL, -- of text: an index over texts would keep them twice
  created INTEGER NOT NULL,
  UNIQUE (game, job, role, digest)
) STRICT;

CREATE TABLE jobs (
  seq     INTEGER PRIMARY KEY AUTOINCREMENT, -- the order of the queue
  id      TEXT NOT NULL UNIQUE,
  game    TEXT NOT NULL REFERENCES games (id),
  creator TEXT NOT NULL,
  state   TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  created INTEGER NOT NULL,
  doc     TEXT NOT NULL
) STRICT;
CREATE INDEX jobs_by_state ON jobs (state, seq);
CREATE INDEX jobs_by_game ON jobs (game, seq);
CREATE INDEX jobs_by_creator ON jobs (creator, state);

CREATE TABLE events (
  job  TEXT NOT NULL REFERENCES jobs (id),
  seq  INTEGER NOT NULL,
  kind TEXT NOT NULL,
  doc  TEXT NOT NULL,
  PRIMARY KEY (job, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE versions (
  id      TEXT PRIMARY KEY,
  game    TEXT NOT NULL REFERENCES games (id),
  job     TEXT NOT NULL UNIQUE REFERENCES jobs (id),
  number  INTEGER NOT NULL,
  created INTEGER NOT NULL,
  doc     TEXT NOT NULL,
  UNIQUE (game, number)
) STRICT;
