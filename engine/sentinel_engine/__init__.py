"""The co-packaged inference engine of Sentinel; `sentinel_engine.rowstore` is its row store."""
