; memory and errors that are caught
(memory/put :a 1) => 1
(do (memory/put :a 1) (memory/put :a 2) memory/a) => 2
(memory/put "text" {:x [1]}) => {:x [1]}
(memory/get :none) => nil
(memory/get :none 5) => 5
(do (memory/put :a nil) (memory/get :a 5)) => nil
(do (memory/put :a 1) (memory/get "a")) => 1
(let [k :dynamic] (memory/put k 1) (memory/get k)) => 1
memory/nothing => nil
ctx/nothing => nil
(try 1 (catch e 2)) => 1
(try (/ 1 0) (catch Exception e (:message e))) => "/: division by zero"
(try (+ 1.5 (pow 10 400)) (catch e (:message e))) => "a number is too large for this operation"
(try (inc nil) (catch e (:reason e))) => :eval_error
(try (throw "bad") (catch e (:message e))) => "bad"
(try (throw (ex-info "bad" {:code 7})) (catch Exception e [(:message e) (:code (:data e))])) => ["bad" 7]
(try (throw {:message "m"}) (catch e (:message e))) => "m"
(try 1 (finally (memory/put :end 1))) => 1
(do (try (throw "x") (catch e 1) (finally (memory/put :end 2))) memory/end) => 2
(try (try (throw "in") (catch e (throw "out"))) (catch e (:message e))) => "out"
(try (call "nothing" {}) (catch e (:reason e))) => :tool_not_found
(try) => nil
(try 1 2) => 2
(throw "bad") !! eval_error 1:1 bad
(throw (ex-info "worse" {:a 1})) !! eval_error 1:1 worse
(throw {:message "map"}) !! eval_error 1:1 map
(throw) !! analysis_error 1:1 throw needs one value
(try 1 (catch)) !! analysis_error 1:8 catch needs a name
(try (catch e 1) (catch e 2)) !! analysis_error 1:6 try takes one catch
(memory/put :a) !! analysis_error 1:1 memory/put needs a key and a value
(memory/put 5 1) !! analysis_error 1:13 a key of the memory is a keyword
(let [k 5] (memory/put k 1)) !! eval_error 1:12 a key of the memory is a keyword, got an integer
(memory/get) !! analysis_error 1:1 memory/get needs a key
(call) !! analysis_error 1:1 call needs the name of a tool
(call tool {}) !! analysis_error 1:7 the name of a tool is a string
(call 5 {}) !! analysis_error 1:7 the name of a tool is a string
(call "t" 1) !! validation_error 1:1 a tool takes one map of arguments
(call "t" {:a 1} {:b 2}) !! validation_error 1:1 a tool takes one map of arguments
(call "t" [1]) !! validation_error 1:1 the tool t takes a map of arguments, got a vector
(call "t" {}) !! tool_not_found 1:1 unknown tool: t
(let [f 5] (call f)) !! eval_error 1:12 the name of a tool is a string, got an integer
(return 1 2) !! analysis_error 1:1 return takes one value
(fail 1 2) !! analysis_error 1:1 fail takes one value
