"""An empty room. Where Python would keep it compiled, `bundle` keeps what a run imports."""
