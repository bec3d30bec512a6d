-- Differs: every database has its own settings; this query omits those that a server does not have.
show global variables
where variable_name in (
    'innodb_doublewrite', 'innodb_flush_log_at_trx_commit', 'log_bin', 'sync_binlog', 'wsrep_on'
)
