(ex-info "late" {:by 3}) => {:message "late" :data {:by 3}}
(ex-info "late") => {:message "late"}
(ex-info :late {}) !! ex-info: expects a string, got a keyword
(ex-message (ex-info "late" {})) => "late"
(try (throw (ex-info "late" {})) (catch e (ex-message e))) => "late"
(ex-message "late") !! ex-message: expects a map, got a string
(ex-data (ex-info "late" {:by 3})) => {:by 3}
(ex-data (ex-info "late")) => nil
(ex-data 5) !! ex-data: expects a map
