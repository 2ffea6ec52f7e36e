; calls in parallel: results in the order of the program
(pmap inc [1 2 3]) => [2 3 4]
(pmap + [1 2] [3 4 5]) => [4 6]
(->> (range 20) (pmap (fn [x] (* x x))) (reduce +)) => 2470
(pmap (fn [x] (pmap (fn [y] (+ x y)) [1 2])) [1 2]) => [[2 3] [3 4]]
(pmap :a [{:a 1} {}]) => [1 nil]
(pmap inc []) => []
(try (pmap (fn [x] (throw "no")) [1 2]) (catch e (:message e))) => "no"
(pmap (fn [x] (if (= x 2) (return x) x)) [1 2 3]) => 2
(pmap inc) !! analysis_error 1:1 pmap needs a function and a collection
(pmap inc 1) !! eval_error 1:1 pmap: expects a collection
(pmap (fn [x] (memory/put :a x)) [1 2]) !! eval_error 1:15 memory/put inside a parallel call
(pcalls #(+ 1 1) (fn [] 3)) => [2 3]
(pcalls) => []
(pcalls 1) !! eval_error 1:1 not callable
(pvalues (+ 1 1) 3 :a) => [2 3 :a]
(pvalues) => []
(let [x 2] (pvalues x (* x x))) => [2 4]
(let [a (future (+ 1 1)) b (future 3)] [(deref b) @a @a]) => [3 2 2]
(map deref (map (fn [x] (future (* x x))) [1 2 3])) => [1 4 9]
(map (fn [f] @f) (map (fn [x] (future (* x x))) [1 2 3])) => [1 4 9]
(try (let [a (future (throw "no"))] (deref a)) (catch e (:message e))) => "no"
(do (future (throw "unread")) 1) !! eval_error 1:13 unread
(let [a (future 1)] (pmap (fn [x] (+ x @a)) [1 2])) => [2 3]
(deref 1) !! eval_error 1:1 deref: expects a future, got an integer
(+ 1 (future 2)) !! eval_error 1:1 +: expects numbers, got a future
((future 2)) !! eval_error 1:1 not callable: a future is not a function
(:a (future {:a 1})) !! eval_error 1:1 cannot look up :a in a future
[(type (future 1)) (fn? (future 1))] => [:future false]
(str (future 1) inc) => "#future#function"
(+ 1 @nothing) !! parse_error 1:7 undefined variable: nothing
