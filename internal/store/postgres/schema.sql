-- The schema, version 1. Any number of backends may run this transaction at once, and any number of
-- times. It neither changes nor locks existing tables, because pushes may be using them.

-- Two transactions that create the same table at once could fail. The lock's number is "weir" in
-- ASCII.
SELECT pg_advisory_xact_lock(2003134834);

DO $$ BEGIN

-- CREATE SCHEMA IF NOT EXISTS would need the right to create a schema even if weir exists.
IF to_regnamespace('weir') IS NULL THEN
  CREATE SCHEMA weir;
END IF;

IF to_regclass('weir.version') IS NULL THEN
  CREATE TABLE weir.version (version integer NOT NULL);
END IF;
IF NOT EXISTS (SELECT FROM weir.version) THEN
  INSERT INTO weir.version VALUES (1);
END IF;

-- fillfactor leaves room in pages for new versions of their rows, which then need no new index
-- entries (HOT updates).

IF to_regclass('weir.counters') IS NULL THEN
  CREATE TABLE weir.counters (
    namespace    text COLLATE "C" NOT NULL,
    id           uuid NOT NULL, -- for its 16 bytes alone
    kind         smallint NOT NULL,
    ordinal      smallint NOT NULL,
    width_ms     bigint NOT NULL,
    precision_ns bigint NOT NULL,
    refill       bigint NOT NULL DEFAULT 0,
    numbers      bigint[] NOT NULL DEFAULT '{}',
    hits         bigint[] NOT NULL DEFAULT '{}',
    expires_at   timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (namespace, id, kind, ordinal, width_ms, precision_ns)
  ) WITH (fillfactor = 70);
  CREATE INDEX counters_expires_at ON weir.counters (expires_at);
END IF;

IF to_regclass('weir.senders') IS NULL THEN
  CREATE TABLE weir.senders (
    namespace       text COLLATE "C" NOT NULL,
    sender          bigint NOT NULL,
    floor           bigint NOT NULL DEFAULT 0,
    sequences       bigint[] NOT NULL DEFAULT '{}',
    grant_sequences bigint[] NOT NULL DEFAULT '{}',
    grant_units     bigint[] NOT NULL DEFAULT '{}',
    grant_nanos     bigint[] NOT NULL DEFAULT '{}',
    expires_at      timestamptz NOT NULL DEFAULT '-infinity',
    PRIMARY KEY (namespace, sender)
  ) WITH (fillfactor = 70);
  CREATE INDEX senders_expires_at ON weir.senders (expires_at);
END IF;

-- The table has few rows, each written every second: an index on joined_at would cost more than it
-- saves.
IF to_regclass('weir.nodes') IS NULL THEN
  CREATE TABLE weir.nodes (
    namespace text COLLATE "C" NOT NULL,
    node      bigint NOT NULL,
    joined_at timestamptz NOT NULL,
    PRIMARY KEY (namespace, node)
  ) WITH (fillfactor = 70);
END IF;

-- Package wire defines the list's encoding.
IF to_regclass('weir.overrides') IS NULL THEN
  CREATE TABLE weir.overrides (
    namespace text COLLATE "C" PRIMARY KEY,
    version   bigint NOT NULL,
    list      bytea NOT NULL
  );
END IF;

IF to_regclass('weir.told') IS NULL THEN
  CREATE TABLE weir.told (
    namespace text COLLATE "C" NOT NULL,
    node      bigint NOT NULL,
    version   bigint NOT NULL,
    unfit     bigint NOT NULL,
    told_at   timestamptz NOT NULL,
    PRIMARY KEY (namespace, node)
  ) WITH (fillfactor = 70);
END IF;

-- Reports of senders on their keys, encoded by package wire. A report is useless after half a
-- minute.
IF to_regclass('weir.reports') IS NULL THEN
  CREATE TABLE weir.reports (
    namespace   text COLLATE "C" NOT NULL,
    sender      bigint NOT NULL,
    report      bytea NOT NULL,
    reported_at timestamptz NOT NULL,
    PRIMARY KEY (namespace, sender)
  ) WITH (fillfactor = 70);
END IF;

-- Records of what people have changed, encoded by package backend.
IF to_regclass('weir.changes') IS NULL THEN
  CREATE TABLE weir.changes (
    namespace  text COLLATE "C" NOT NULL,
    change     bigint NOT NULL,
    record     bytea NOT NULL,
    changed_at timestamptz NOT NULL,
    PRIMARY KEY (namespace, change)
  );
END IF;

-- What nodes have told of their rules, encoded by package wire, and the namespaces that they told of.
IF to_regclass('weir.rules') IS NULL THEN
  CREATE TABLE weir.rules (
    namespace text COLLATE "C" NOT NULL,
    digest    bigint NOT NULL,
    rules     bytea NOT NULL,
    told_at   timestamptz NOT NULL,
    PRIMARY KEY (namespace, digest)
  );
END IF;

IF to_regclass('weir.namespaces') IS NULL THEN
  CREATE TABLE weir.namespaces (
    namespace text COLLATE "C" NOT NULL,
    member    bigint NOT NULL,
    name      bytea NOT NULL,
    told_at   timestamptz NOT NULL,
    PRIMARY KEY (namespace, member)
  );
END IF;

-- The hits of a label on a day, the last budget that was sent for it, and the rank of the label whose
-- place it has taken. Package wire defines labels and budgets. Days are counted from 1 January 1970.
IF to_regclass('weir.used') IS NULL THEN
  CREATE TABLE weir.used (
    namespace text COLLATE "C" NOT NULL,
    day       integer NOT NULL,
    label     bytea NOT NULL,
    hits      bigint NOT NULL,
    budget    bytea NOT NULL DEFAULT '',
    base      bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (namespace, day, label)
  ) WITH (fillfactor = 70);
  CREATE INDEX used_day ON weir.used (day);
END IF;

-- What each sender of messages on used hits has told last, encoded by package backend.
IF to_regclass('weir.tellers') IS NULL THEN
  CREATE TABLE weir.tellers (
    namespace text COLLATE "C" NOT NULL,
    sender    bigint NOT NULL,
    note      bytea NOT NULL,
    told_at   timestamptz NOT NULL,
    PRIMARY KEY (namespace, sender)
  ) WITH (fillfactor = 70);
END IF;

-- The last sequence of a sender's messages on used hits.
IF to_regclass('weir.accountants') IS NULL THEN
  CREATE TABLE weir.accountants (
    namespace  text COLLATE "C" NOT NULL,
    sender     bigint NOT NULL,
    sequence   bigint NOT NULL,
    expires_at timestamptz NOT NULL,
    PRIMARY KEY (namespace, sender)
  ) WITH (fillfactor = 70);
  CREATE INDEX accountants_expires_at ON weir.accountants (expires_at);
END IF;

END $$;
